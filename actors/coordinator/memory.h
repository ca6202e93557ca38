// The memory that a coordinator uses, for tests and the simulator.
#pragma once

#include <cstdint>

#include "actors/role.h"

namespace shoal::actors {

// Estimates the bytes of what this role holds: ranks, reports, rosters with their layouts, ids of computed
// plans. Computed from the sizes of containers and elements, without the overhead of the allocator and
// without operations in progress. The time it takes grows with the number of nodes, not of ranks. Returns 0
// for any other role.
uint64_t coordinator_memory_bytes(const Role& role);

}  // namespace shoal::actors
