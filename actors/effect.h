// Effect: everything that a role may request of its host.
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
// To a role of another node, or of this one. `to` is kThisNode, or kCoordinatorNode if the coordinator is
// here.
struct Send {
  NodeId to = kThisNode;
  WireMessage message;
  // If not 0, and `to` is a node that connected through SendTo: SendDone follows exactly once, at the latest
  // when the session of that node ends.
  SendId id = 0;
};
// To a role of the node that listens at this address (operation::ListenToPeers). Its answers come from a
// NodeId; a role sends to that as to any other.
struct SendTo {
  std::string address;
  WireMessage message;
};
// An event for another role of this node. Events never leave the node.
struct ToRole {
  RoleKind to = RoleKind::shard_writer;
  Event event;
};
struct ToClient {
  ClientId client = 0;
  std::shared_ptr<const local::LocalMessage> message;
};
struct ForgetClient {  // the node may free its slabs
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
// Planner: from now on kCoordinatorNode is the coordinator of this epoch at this address, unless the node
// already knows one with a later epoch.
struct Redirect {
  uint32_t epoch = 0;
  std::string address;
};
// Coordinator, its last effect: a later epoch exists. From now on this role answers every message with it and
// does nothing else.
struct Retire {
  storage::EpochRecord by;
};
struct Drained {};
// Ends the session with a node that connected through SendTo. Messages to it that have not left are dropped.
struct EndSession {
  NodeId node = kThisNode;
  Status why;
};
struct Log {  // one human-readable line
  enum class Level : uint8_t { info, warning } level = Level::info;
  std::string line;
};
}  // namespace effect
using Effect =
    std::variant<effect::Send, effect::SendTo, effect::ToRole, effect::ToClient, effect::ForgetClient,
                 effect::SetTimer, effect::CancelTimer, effect::Start, effect::Redirect, effect::Retire,
                 effect::Drained, effect::Log, effect::EndSession>;
using Effects = std::vector<Effect>;

}  // namespace shoal::actors
