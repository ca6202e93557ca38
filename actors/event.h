// Event: all that a role may receive.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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
struct Started {};  // once, before any other
struct Received {   // from another node, or from a role of this one
  NodeId from = kThisNode;
  WireMessage message;
};
struct FromClient {
  ClientId client = 0;
  std::shared_ptr<const local::LocalMessage> message;
};
struct ClientLost {  // its connection ended; after local::Detach, cleanly
  ClientId client = 0;
};
struct WorldKnown {  // Planner -> ShardWriter and Loader, on this node
  std::shared_ptr<const World> world;
  SaveOptions options;
  std::optional<Rank> alone;  // rank-local: what this rank knows by itself (rank_local_world)
};
struct CommittedAlone {};  // ShardWriter -> Coordinator of this node, if it is here: a rank-local save is
struct RanksLost {  // Coordinator -> ShardWriter of this node, in mode rank-local. Takes the place of the
                    // one before
  std::vector<Rank> ranks;  // ascending: of hosts that are lost. Empty: all have come back
  std::string cause;
};
struct PlanningFailed {  // Planner -> ShardWriter, on this node: no roster will come
  Status why;
};
struct TimerFired {
  TimerId timer = 0;
};
struct OperationDone {
  OperationId operation = 0;
  Result<OperationResult> result;
};
struct PeerUp {  // only of kCoordinatorNode: a session with it stands, the first or another one
  NodeId node = kThisNode;
};
struct CoordinatorGone {  // Planner -> ShardWriter, on this node: none of this job will be heard any more
  Status why;
};
struct PeerLost {
  NodeId node = kThisNode;
  Status why;
};
struct TrainerEnded {  // to the ShardWriter: whoever started this rank says so; it will not attach again
  Rank rank = 0;
  std::string how;  // "exit status 1"
};
// To the Coordinator: its node was told to stop; Drain follows. trainers_live: trainers of its host are still
// attached, so that another node will take its place and the job goes on.
struct Stopping {
  bool trainers_live = false;
};
struct Drain {                 // finish what is staged, then answer effect::Drained
  bool told = true;            // the node was told to stop: its ranks are gone. Else nobody needed it
  bool trainers_live = false;  // as of Stopping, for the Coordinator; the ShardWriter knows its clients
};
struct SendDone {  // of an effect::Send with an id: nothing of its message is held here any more. It has
                   // left, or was dropped
  SendId send = 0;
};
}  // namespace event
using Event =
    std::variant<event::Started, event::Received, event::FromClient, event::ClientLost, event::WorldKnown,
                 event::PlanningFailed, event::TimerFired, event::OperationDone, event::PeerUp,
                 event::CoordinatorGone, event::PeerLost, event::TrainerEnded, event::Stopping, event::Drain,
                 event::CommittedAlone, event::RanksLost, event::SendDone>;

}  // namespace shoal::actors
