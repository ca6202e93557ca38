// CorePool: the processors that all hosts of a simulated job share, where they run on one machine; else each
// host has as many as it needs. Work goes to the one that is free first, in the order in which it is ready.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "actors/role.h"

namespace shoal::sim {

class CorePool {
 public:
  // 0 cores: nobody waits.
  explicit CorePool(uint32_t cores) : free_(cores, 0) {}

  // When work is done that is ready at `from` and takes so long.
  actors::TimeNs end_of(actors::TimeNs from, actors::TimeNs takes) {
    if (free_.empty()) return from + takes;
    actors::TimeNs& core = *std::min_element(free_.begin(), free_.end());
    core = std::max(core, from) + takes;
    return core;
  }

 private:
  std::vector<actors::TimeNs> free_;  // by core: when
};

}  // namespace shoal::sim
