// What the links of nodes say to each other where relays stand between nodes and the coordinator
// (schema/wire.capnp, Link), as plain values. Roles never see them. docs/reference/transport.md, "Relays".
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

// Of a message between roles, so that it still fits when a relay puts it into one of its own.
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
struct GoBy {           // coordinator -> node that came
  std::string address;  // empty: come again, for now there is no relay
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
  Bytes message;  // as encode_wire made it
};
struct ToChild {  // coordinator -> relay
  uint64_t child = 0;
  Bytes message;
};
struct DropChild {  // coordinator -> relay
  uint64_t child = 0;
  std::string cause;
};

struct Welcome {};  // coordinator -> node, through its relay if it has one: this is its place

}  // namespace link

using LinkMessage =
    std::variant<link::ServeAsRelay, link::RelayReady, link::RelayFailed, link::GoBy, link::ChildUp,
                 link::ChildLost, link::FromChild, link::ToChild, link::DropChild, link::Welcome>;

Bytes encode_link(const LinkMessage& message);
// Untrusted bytes: bounded memory, no crash. Nothing: a message between roles, for decode_wire.
Result<std::optional<LinkMessage>> decode_link(ByteView bytes);

}  // namespace shoal::actors
