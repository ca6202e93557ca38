#include "sim/event_heap.h"

#include <algorithm>
#include <utility>

namespace shoal {

namespace {
constexpr size_t kChildren = 4;
}  // namespace

void EventHeap::schedule(TimeNs at, Action action) {
  uint32_t slot = 0;
  if (free_slots_.empty()) {
    slot = static_cast<uint32_t>(actions_.size());
    actions_.push_back(std::move(action));
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
    actions_[slot] = std::move(action);
  }
  const Item item{std::max(at, now_), sequence_++, slot};
  size_t here = heap_.size();
  heap_.push_back(item);
  for (; here > 0; here = (here - 1) / kChildren) {
    const size_t parent = (here - 1) / kChildren;
    if (!item.before(heap_[parent])) break;
    heap_[here] = heap_[parent];
    heap_[parent] = item;
  }
}

void EventHeap::run_next() {
  const Item first = heap_.front();
  const Item last = heap_.back();
  heap_.pop_back();
  for (size_t here = 0; !heap_.empty();) {
    const size_t begin = here * kChildren + 1, end = std::min(begin + kChildren, heap_.size());
    size_t least = begin;
    for (size_t child = begin + 1; child < end; ++child) {
      if (heap_[child].before(heap_[least])) least = child;
    }
    if (begin >= heap_.size() || !heap_[least].before(last)) {
      heap_[here] = last;
      break;
    }
    heap_[here] = heap_[least];
    here = least;
  }
  now_ = first.at;
  ++executed_;
  const Action action = std::exchange(actions_[first.slot], nullptr);
  free_slots_.push_back(first.slot);
  action();
}

}  // namespace shoal
