// How the nodes of a job reach each other: which transport, which interface, which ports.
#pragma once

#include <cstdint>
#include <string>

#include "shoal/status.h"

namespace shoal::transport {

// What messages between nodes pass by. A listener decides for its sessions, and tells each connector in the
// handshake. `automatic` is `ucx` for a session that came by the interface of an active RDMA device, and
// `tcp` for any other; a connector that is `automatic` takes what the listener uses. A connector for which
// one of the others was asked ends the session where the listener uses another.
enum class TransportKind {
  automatic,
  tcp,  // TCP with TLS 1.3: everything is encrypted, and authenticated by the job's token
  ucx,  // UCX, for RDMA; only its handshake is encrypted
};
inline constexpr const char* kTransportKinds = "auto, tcp or ucx";
Result<TransportKind> parse_transport_kind(const std::string& text);
const char* to_string(TransportKind kind);

inline constexpr const char* kRdmaDevices = "/sys/class/infiniband";
// A port of an InfiniBand or RoCE device is active.
bool has_active_rdma_device(const std::string& devices = kRdmaDevices);
// This network interface is that of an active RDMA device: a session by it can go by RDMA. That a device is
// active says nothing of the others: an idle adapter, or a virtual one of a cloud, is active too.
bool is_rdma_interface(const std::string& interface, const std::string& devices = kRdmaDevices);

// Ports that a node may choose from where it may choose any. first == 0: not set, the system chooses.
struct PortRange {
  uint16_t first = 0, last = 0;
  bool is_set() const { return first != 0; }
};
Result<PortRange> parse_port_range(const std::string& text);  // "7100-7199"; "" is not set
std::string to_string(const PortRange& ports);

struct NetworkOptions {
  TransportKind transport = TransportKind::automatic;
  // Name or IPv4 address of the interface that relays and nodes that share loads listen on, and a coordinator
  // that would else listen on all. Empty: that by which the coordinator is reached.
  std::string interface;
  PortRange ports;  // of relays and of nodes that share loads
};

// The IPv4 address of an interface given by its name or address. Code::not_found where this host has no such
// interface; the message names those it has.
Result<std::string> address_of_interface(const std::string& interface);

}  // namespace shoal::transport
