// Whether a client may allocate a slab, where no node grants it memory.
#pragma once

#include <cstdint>

#include "base/memory_headroom.h"
#include "shoal/status.h"

namespace shoal::client {

// OK if `wanted` more bytes may be allocated while `held` are. Code::no_space names the numbers.
// staging_bytes_max 0: memory_headroom decides; else it alone.
Status check_budget(uint64_t wanted, uint64_t held, uint64_t staging_bytes_max,
                    const base::MemoryFiles& files = {});

}  // namespace shoal::client
