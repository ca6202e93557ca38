// Decides whether a client may allocate a slab if its node does not grant staging memory.
#pragma once

#include <cstdint>

#include "base/memory_headroom.h"
#include "shoal/status.h"

namespace shoal::client {

// OK if `wanted` more bytes may be allocated in addition to `held` bytes. Code::no_space names the numbers.
// The limit is staging_bytes_max; if that is 0, memory_headroom is the limit.
Status check_budget(uint64_t wanted, uint64_t held, uint64_t staging_bytes_max,
                    const base::MemoryFiles& files = {});

}  // namespace shoal::client
