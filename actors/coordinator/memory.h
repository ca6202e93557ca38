// How much a coordinator remembers, for who watches it from outside: tests and the simulator.
#pragma once

#include <cstdint>

#include "actors/role.h"

namespace shoal::actors {

// Bytes of what this role holds: ranks, reports, rosters with their layouts, plans it has worked out as ids.
// From the sizes of containers and of their elements, without what an allocator adds and without operations
// under way; takes a time in the number of nodes, not of ranks. 0 for any other role.
uint64_t coordinator_memory_bytes(const Role& role);

}  // namespace shoal::actors
