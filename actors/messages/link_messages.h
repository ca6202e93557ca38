// Messages between the links of nodes, for relays between nodes and the coordinator, as plain values
// (schema/wire.capnp, Link). Roles never see them. docs/reference/transport.md, "Relays".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "shoal/bytes.h"
#include "shoal/hash.h"
#include "shoal/status.h"
#include "transport/transport.h"

namespace shoal::actors {

// Bound of a message between roles, chosen so that it still fits when a relay puts it into FromChild or
// ToChild.
inline constexpr size_t kRelayedOverheadBytes = 4096;
inline constexpr size_t kMaxRelayedBytes = transport::kMaxMessageBytes - kRelayedOverheadBytes;

namespace link {

struct ServeAsRelay {  // coordinator -> node
  uint32_t children_max = 0;
};
struct RelayReady {  // node -> coordinator
  std::string address;
  uint32_t children_max = 0;
};
struct RelayFailed {  // node -> coordinator
  std::string cause;
};
struct UseRelay {       // coordinator -> node that connected to it
  std::string address;  // of the relay to use; empty: there is no relay yet, try again later
  std::string cause;
};
struct ChildUp {  // relay -> coordinator
  uint64_t child = 0;
  std::string name;
  Nonce incarnation;
};
struct ChildLost {  // relay -> coordinator
  uint64_t child = 0;
  std::string cause;
};
struct FromChild {  // relay -> coordinator
  uint64_t child = 0;
  Bytes message;  // as encode_wire encoded it
};
struct ToChild {  // coordinator -> relay
  uint64_t child = 0;
  Bytes message;
};
struct DropChild {  // coordinator -> relay
  uint64_t child = 0;
  std::string cause;
};

// coordinator -> node, through its relay if it has one: the node has found its place.
struct Welcome {};

// The status of the job, for `shoal status` (local/status/job_status.h). A node sends the request only if a
// process of its host asks; the coordinator then asks all nodes. A loss does not matter.
struct JobStatusRequest {};  // node -> coordinator
struct JobStatusTable {      // coordinator -> node
  Bytes status;              // as encode_job_status encoded it
};
struct HostStatusRequest {};  // coordinator -> node
struct HostStatusReport {     // node -> coordinator
  Bytes status;               // as encode_host_status encoded it
};

}  // namespace link

using LinkMessage = std::variant<link::ServeAsRelay, link::RelayReady, link::RelayFailed, link::UseRelay,
                                 link::ChildUp, link::ChildLost, link::FromChild, link::ToChild,
                                 link::DropChild, link::Welcome, link::JobStatusRequest, link::JobStatusTable,
                                 link::HostStatusRequest, link::HostStatusReport>;

Bytes encode_link(const LinkMessage& message);
// Accepts untrusted bytes: bounded memory, no crash. Returns nullopt for a message between roles, which
// decode_wire decodes.
Result<std::optional<LinkMessage>> decode_link(ByteView bytes);

}  // namespace shoal::actors
