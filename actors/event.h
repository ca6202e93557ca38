// Event: everything that a role may receive.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "actors/ids.h"
#include "actors/messages/messages.h"
#include "actors/operation.h"
#include "local/messages/messages.h"
#include "shoal/status.h"

namespace shoal::actors {

namespace event {
struct Started {};  // once, before any other event
struct Received {   // from a role of another node, or of this node
  NodeId from = kThisNode;
  WireMessage message;
};
struct FromClient {
  ClientId client = 0;
  std::shared_ptr<const local::LocalMessage> message;
};
struct ClientLost {  // the connection of a client has ended; after local::Detach it ended cleanly
  ClientId client = 0;
  // Its process was still alive afterwards, so that it may attach again. False: it has ended, or this is not
  // known.
  bool process_lives = false;
};
struct WorldKnown {  // Planner -> ShardWriter and Loader of this node
  std::shared_ptr<const World> world;
  SaveOptions options;
  std::optional<Rank> rank_local;  // mode rank-local: the rank whose own world this is (rank_local_world)
};
// Coordinator -> ShardWriter of this node, in mode rank-local. Each replaces the one before.
struct RanksLost {
  struct Ended {  // a rank that stages nothing more
    Rank rank = 0;
    std::string cause;
    std::set<AttemptKey> staged;  // saves that its node still completes
    friend bool operator==(const Ended&, const Ended&) = default;
  };
  std::vector<Rank> ranks;  // of hosts that are lost, ascending; empty: all have come back
  std::string cause;
  std::vector<Ended> ended;  // ascending
  bool is_empty() const { return ranks.empty() && ended.empty(); }
  friend bool operator==(const RanksLost&, const RanksLost&) = default;
};
struct PlanningFailed {  // Planner -> ShardWriter of this node: no roster will come
  Status why;
};
struct TimerFired {
  TimerId timer = 0;
};
struct OperationDone {
  OperationId operation = 0;
  Result<OperationResult> result;
};
struct PeerUp {  // only for kCoordinatorNode: a session with it exists, the first one or a new one
  NodeId node = kThisNode;
};
// Planner -> ShardWriter of this node: no coordinator of this job will answer any more.
struct CoordinatorSuperseded {
  Status why;
};
struct PeerLost {
  NodeId node = kThisNode;
  Status why;
};
// To the ShardWriter: the launcher reports that the trainer of this rank has ended. It will not attach again.
struct TrainerEnded {
  Rank rank = 0;
  std::string how;  // for example "exit status 1"
};
// To the ShardWriter: a trainer of another run wants to start its node on this host. So the trainers of this
// run that are not attached do not come back.
struct NextRunStarts {};
// To the Coordinator: its node was requested to stop, and Drain follows. trainers_live: trainers of its host
// are still attached, so another node will take its place and the job continues.
struct Stopping {
  bool trainers_live = false;
};
struct Drain {  // finish what is staged, then return effect::Drained
  bool by_request =
      true;  // the node was requested to stop, and its ranks are gone; false: no client needs it
  bool trainers_live = false;  // as in Stopping, for the Coordinator; the ShardWriter knows its clients
};
// For an effect::Send with an id: the role host no longer holds anything of its message. It has sent or
// dropped it.
struct SendDone {
  SendId send = 0;
};
}  // namespace event
using Event =
    std::variant<event::Started, event::Received, event::FromClient, event::ClientLost, event::WorldKnown,
                 event::PlanningFailed, event::TimerFired, event::OperationDone, event::PeerUp,
                 event::CoordinatorSuperseded, event::PeerLost, event::TrainerEnded, event::Stopping,
                 event::Drain, event::RanksLost, event::SendDone, event::NextRunStarts>;

}  // namespace shoal::actors
