// CorePool: the processor cores of one machine, if all hosts of a simulated job share it. Otherwise each host
// has as many cores as it needs. Work runs in the order in which it is ready, on the core that is free first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "actors/role.h"

namespace shoal::sim {

class CorePool {
 public:
  // With 0 cores the number is unlimited, and work never waits.
  explicit CorePool(uint32_t cores) : free_(cores, 0) {}

  // Returns when work ends that is ready at `from` and takes `takes`.
  actors::TimeNs end_of(actors::TimeNs from, actors::TimeNs takes) {
    if (free_.empty()) return from + takes;
    actors::TimeNs& core = *std::min_element(free_.begin(), free_.end());
    core = std::max(core, from) + takes;
    return core;
  }

 private:
  std::vector<actors::TimeNs> free_;  // by core: the time from which it is free
};

}  // namespace shoal::sim
