// How roles name times, nodes, timers, operations and sends.
#pragma once

#include <cstdint>

namespace shoal::actors {

using TimeNs = int64_t;  // monotonic, from an arbitrary start
inline constexpr TimeNs kMillisecond = 1'000'000;

// A node as roles see it: a session. 0 is this node; the coordinator's node has a name of its own, wherever
// it is.
using NodeId = uint64_t;
inline constexpr NodeId kThisNode = 0;
inline constexpr NodeId kCoordinatorNode = 1;
inline constexpr NodeId kFirstPeerNode = 16;  // hosts map sessions to ids from here on, never used twice
inline constexpr NodeId kFirstSharer = NodeId{1} << 40;  // likewise, of nodes that came by effect::SendTo

using TimerId = uint64_t;      // chosen by the role; setting one again moves it
using OperationId = uint64_t;  // chosen by the role, never used twice
using SendId = uint64_t;       // likewise, from 1 on

}  // namespace shoal::actors
