// How roles name times, nodes, timers, operations and sends.
#pragma once

#include <cstdint>

namespace shoal::actors {

using TimeNs = int64_t;  // monotonic, from an arbitrary start
inline constexpr TimeNs kMillisecond = 1'000'000;

// A node as roles see it: a session. As a receiver, the coordinator is always kCoordinatorNode, even where it
// is this node. What comes from a role of this node, the coordinator too, is from kThisNode.
using NodeId = uint64_t;
inline constexpr NodeId kThisNode = 0;
inline constexpr NodeId kCoordinatorNode = 1;
inline constexpr NodeId kFirstPeerNode = 16;  // the role host numbers sessions from here on, each once
// likewise, for nodes that connected through effect::SendTo
inline constexpr NodeId kFirstSharer = NodeId{1} << 40;

using TimerId = uint64_t;      // chosen by the role; setting a pending timer again moves it
using OperationId = uint64_t;  // chosen by the role, and never used twice
using SendId = uint64_t;       // likewise; counts from 1

}  // namespace shoal::actors
