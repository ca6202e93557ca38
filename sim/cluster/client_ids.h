// The connections of simulated trainers to their nodes.
#pragma once

#include <cstdint>

#include "actors/operation.h"

namespace shoal::sim {

// A connection of a simulated trainer, and its rank. `number`: how many connections to its node broke before.
inline actors::ClientId client_of(Rank rank, uint32_t number = 0) {
  return (actors::ClientId{number} << 32) + rank + 1;
}
inline Rank rank_of(actors::ClientId client) {
  return static_cast<Rank>(client - 1);
}

}  // namespace shoal::sim
