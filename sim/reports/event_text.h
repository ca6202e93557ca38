// Human-readable lines about the events of a simulation: the protocol log of `shoal replay`.
//
//   20.155301042 node0.coordinator: Received from node3: ShardsWritten step 2 (g1a1): 8 ranks, 8 files
#pragma once

#include <string>

#include "actors/role.h"
#include "sim/failures/failure.h"

namespace shoal::sim {

std::string seconds_text(actors::TimeNs at);  // "20.155301042"
// Without what differs from event to event: "Received ShardsWritten", "OperationDone", "TimerFired".
std::string event_name(const actors::Event& event);
// `from`: the node that sent the message, another one or this one.
std::string event_line(actors::TimeNs at, size_t node, actors::RoleKind role, const actors::Event& event,
                       size_t from);
std::string failure_line(actors::TimeNs at, const Failure& failure);
std::string notified_line(actors::TimeNs at, Rank rank, const local::Decided& decided);
std::string local_message_name(const local::LocalMessage& message);  // "local::Staged"

}  // namespace shoal::sim
