// Effect: all that a role may ask of its host.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "actors/event.h"
#include "actors/ids.h"
#include "actors/messages/messages.h"
#include "actors/operation.h"
#include "local/messages/messages.h"
#include "shoal/status.h"

namespace shoal::actors {

namespace effect {
struct Send {  // to a role of another node, or of this one (kThisNode, or kCoordinatorNode if that is here)
  NodeId to = kThisNode;
  WireMessage message;
  SendId id = 0;  // not 0, to a node that came by SendTo: SendDone follows, once, at the latest when its
                  // session has ended
};
struct SendTo {  // to a role of the node that listens there (operation::ListenToPeers); answers come from a
                 // NodeId, to which one is sent as to any other
  std::string address;
  WireMessage message;
};
struct Tell {  // to a role of this node, what never leaves it
  RoleKind to = RoleKind::shard_writer;
  Event event;
};
struct ToClient {
  ClientId client = 0;
  std::shared_ptr<const local::LocalMessage> message;
};
struct ForgetClient {  // its slabs are needed no more
  ClientId client = 0;
};
struct SetTimer {
  TimerId timer = 0;
  TimeNs at = 0;
};
struct CancelTimer {
  TimerId timer = 0;
};
struct Start {
  OperationId id = 0;
  Operation operation;
};
struct Redirect {  // Planner: kCoordinatorNode is the coordinator of this epoch, at this address, if it is
                   // later
  uint32_t epoch = 0;
  std::string address;
};
struct Retire {  // Coordinator, last of all: a later epoch stands; this role answers with it and does no more
  storage::EpochRecord by;
};
struct Drained {};
struct EndSession {  // with a node that came by SendTo: what is for it and has not left is dropped
  NodeId node = kThisNode;
  Status why;
};
struct Log {  // for people: one line
  enum class Level : uint8_t { info, warning } level = Level::info;
  std::string line;
};
}  // namespace effect
using Effect =
    std::variant<effect::Send, effect::SendTo, effect::Tell, effect::ToClient, effect::ForgetClient,
                 effect::SetTimer, effect::CancelTimer, effect::Start, effect::Redirect, effect::Retire,
                 effect::Drained, effect::Log, effect::EndSession>;
using Effects = std::vector<Effect>;

}  // namespace shoal::actors
