// How the nodes of a job connect: the transport, the interface and the ports.
#pragma once

#include <cstdint>
#include <string>

#include "shoal/status.h"

namespace shoal::transport {

// What carries messages between nodes. A listener decides for its sessions and sends the choice to each
// connector in the handshake. On a listener `automatic` means `ucx` for a session on the interface of an
// active RDMA device, and `tcp` for any other. A connector with `automatic` accepts the listener's choice. A
// connector with `tcp` or `ucx` ends the session if the listener uses the other.
enum class TransportKind {
  automatic,
  tcp,  // TCP with TLS 1.3: all bytes are encrypted and authenticated by the job's token
  ucx,  // UCX, for RDMA; only the handshake is encrypted
};
inline constexpr const char* kTransportKinds = "auto, tcp or ucx";
Result<TransportKind> parse_transport_kind(const std::string& text);
const char* to_string(TransportKind kind);

inline constexpr const char* kRdmaDevices = "/sys/class/infiniband";
// Whether a port of an InfiniBand or RoCE device is active.
bool has_active_rdma_device(const std::string& devices = kRdmaDevices);
// Whether this network interface belongs to an active RDMA device, so that a session on it can use RDMA. An
// active device does not prove that RDMA works between hosts: an idle adapter, or a virtual one in a cloud,
// is active too.
bool is_rdma_interface(const std::string& interface, const std::string& devices = kRdmaDevices);

// Ports from which a node may choose where any would do. first == 0: not set; the system chooses.
struct PortRange {
  uint16_t first = 0, last = 0;
  bool is_set() const { return first != 0; }
};
Result<PortRange> parse_port_range(const std::string& text);  // "7100-7199"; "" means not set
std::string to_string(const PortRange& ports);

struct NetworkOptions {
  TransportKind transport = TransportKind::automatic;
  // Name or IPv4 address of the interface on which relays and nodes that share loads listen. Also of a
  // coordinator that would otherwise listen on all. Empty: the interface that reaches the coordinator.
  std::string interface;
  PortRange ports;  // of relays and of nodes that share loads
};

// The IPv4 address of an interface, given by name or address. Code::not_found if this host has no such
// interface; the message lists those it has.
Result<std::string> address_of_interface(const std::string& interface);

}  // namespace shoal::transport
