#include "sim/basics/event_heap.h"

#include <algorithm>

#include "base/check.h"

namespace shoal {

namespace {
constexpr size_t kChildren = 4;
}  // namespace

EventHeap::~EventHeap() {
  for (const Item& item : heap_) slot(item.slot()).act(*this, item.slot(), What::drop);
}

EventHeap::Slot& EventHeap::push(TimeNs at) {
  if (free_slots_.empty()) {
    const size_t first = blocks_.size() * kBlock;
    SHOAL_CHECK(first + kBlock <= kMaxPending);
    blocks_.push_back(std::make_unique_for_overwrite<Slot[]>(kBlock));
    for (size_t i = kBlock; i-- > 0;) free_slots_.push_back(static_cast<uint32_t>(first + i));
  }
  const uint32_t number = free_slots_.back();
  free_slots_.pop_back();
  const Item item{std::max(at, now_), sequence_++ * kMaxPending + number};
  size_t here = heap_.size();
  heap_.push_back(item);
  for (; here > 0; here = (here - 1) / kChildren) {
    const size_t parent = (here - 1) / kChildren;
    if (!item.before(heap_[parent])) break;
    heap_[here] = heap_[parent];
  }
  heap_[here] = item;
  return slot(number);
}

void EventHeap::run_next() {
  const Item first = heap_.front();
  const Item last = heap_.back();
  heap_.pop_back();
  const size_t size = heap_.size();
  for (size_t here = 0; size != 0;) {
    const size_t begin = here * kChildren + 1, end = std::min(begin + kChildren, size);
    if (begin >= size) {
      heap_[here] = last;
      break;
    }
    size_t least = begin;
    for (size_t child = begin + 1; child < end; ++child) {
      if (heap_[child].before(heap_[least])) least = child;
    }
    if (!heap_[least].before(last)) {
      heap_[here] = last;
      break;
    }
    heap_[here] = heap_[least];
    here = least;
  }
  now_ = first.at;
  ++executed_;
  slot(first.slot()).act(*this, first.slot(), What::run);
}

}  // namespace shoal
