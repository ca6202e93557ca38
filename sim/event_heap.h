// EventHeap: what happens when, on virtual time.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "actors/role.h"

namespace shoal {

// A heap of four children a node; times in nanoseconds, ties by the order in which they were scheduled. One
// thread.
class EventHeap {
 public:
  using Action = std::function<void()>;

  TimeNs now() const { return now_; }
  uint64_t executed() const { return executed_; }
  bool empty() const { return heap_.empty(); }
  void schedule(TimeNs at, Action action);  // not before now
  // Moves time on to the next action and runs it. Precondition: not empty.
  void run_next();

 private:
  struct Item {
    TimeNs at = 0;
    uint64_t sequence = 0;
    uint32_t slot = 0;
    bool before(const Item& other) const {
      return at != other.at ? at < other.at : sequence < other.sequence;
    }
  };

  TimeNs now_ = 0;
  uint64_t sequence_ = 0;
  uint64_t executed_ = 0;
  std::vector<Item> heap_;
  std::vector<Action> actions_;  // by slot
  std::vector<uint32_t> free_slots_;
};

}  // namespace shoal
