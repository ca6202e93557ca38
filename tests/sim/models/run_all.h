// run_all: for tests of models that have an event heap of their own.
#pragma once

#include "sim/basics/event_heap.h"

namespace shoal::sim {

inline void run_all(EventHeap& events) {
  while (!events.empty()) events.run_next();
}

}  // namespace shoal::sim
