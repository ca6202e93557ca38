#include "sim/basics/event_heap.h"

namespace shoal::sim {

namespace {
// How many of the next actions are prefetched, and how few must be left before the memory that they touch is
// prefetched.
constexpr size_t kSoon = 16, kVerySoon = 4;
constexpr size_t kTouchedBytes = 128;  // bytes of the touched memory that are prefetched
}  // namespace

EventHeap::~EventHeap() {
  for (size_t i = next_; i < buckets_[0].size(); ++i)
    buckets_[0][i].slot->act(*this, buckets_[0][i].slot, What::drop);
  for (size_t bucket = 1; bucket < kBuckets; ++bucket) {
    for (const Item& item : buckets_[bucket]) item.slot->act(*this, item.slot, What::drop);
  }
}

EventHeap::Slot* EventHeap::take_slot() {
  if (free_slots_.empty()) {
    blocks_.push_back(std::make_unique_for_overwrite<Slot[]>(kBlock));
    for (size_t i = kBlock; i-- > 0;) free_slots_.push_back(&blocks_.back()[i]);
  }
  Slot* slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

// Advances to the least time of the first bucket that is not empty. All of its items then belong to smaller
// buckets, which are empty, so the order of ties is kept.
void EventHeap::move_on() {
  buckets_[0].clear();
  next_ = 0;
  const auto first = static_cast<size_t>(std::countr_zero(filled_));
  filled_ &= filled_ - 1;
  std::vector<Item>& bucket = buckets_[first];
  now_ = std::min_element(bucket.begin(), bucket.end(), [](const Item& a, const Item& b) {
           return a.at < b.at;
         })->at;
  const bool is_soon = bucket.size() <= kSoon, is_very_soon = bucket.size() <= kVerySoon;
  for (const Item& item : bucket) {
    if (is_very_soon && item.slot->touches != nullptr) {
      fetch_lines(item.slot->touches, kTouchedBytes);
    } else if (is_soon) {
      __builtin_prefetch(item.slot);
    }
    put(item);
  }
  bucket.clear();
}

// While this action runs, prefetches what the next action reaches through the memory that it touches.
void EventHeap::fetch_next() {
  constexpr size_t kNext = 2;
  auto fetch = [this](Slot* slot) {
    if (slot->touches != nullptr) slot->act(*this, slot, What::fetch);
  };
  if (next_ < buckets_[0].size()) return fetch(buckets_[0][next_].slot);
  if (filled_ == 0) return;
  const std::vector<Item>& soon = buckets_[static_cast<size_t>(std::countr_zero(filled_))];
  if (soon.size() > kNext) return;
  for (const Item& item : soon) fetch(item.slot);
}

void EventHeap::run_next() {
  if (next_ == buckets_[0].size()) move_on();
  const std::vector<Item>& due = buckets_[0];
  Slot* slot = due[next_++].slot;
  // If many actions are due at once, the later ones were not prefetched when their time was reached.
  if (next_ + kSoon <= due.size()) __builtin_prefetch(due[next_ + kSoon - 1].slot);
  if (next_ + kVerySoon <= due.size()) {
    const void* touches = due[next_ + kVerySoon - 1].slot->touches;
    if (touches != nullptr) fetch_lines(touches, kTouchedBytes);
  }
  fetch_next();
  ++executed_;
  slot->act(*this, slot, What::run);
}

}  // namespace shoal::sim
