#include "sim/basics/event_heap.h"

namespace shoal::sim {

namespace {
// How many of the next actions are prefetched, and how few must be left before the memory that they touch is
// prefetched.
constexpr size_t kSoon = 16, kVerySoon = 4;
constexpr size_t kTouchedBytes = 128;  // bytes of the touched memory that are prefetched
}  // namespace

EventHeap::~EventHeap() {
  for (size_t i = next_; i < due_.size(); ++i) due_[i].slot->act(*this, due_[i].slot, What::drop);
  for (const Bucket& bucket : buckets_) {
    for_each(bucket, [this](const Item& item) { item.slot->act(*this, item.slot, What::drop); });
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

void EventHeap::add_chunk(Bucket& bucket) {
  Chunk* chunk = free_chunks_;
  if (chunk != nullptr) {
    free_chunks_ = chunk->next;
  } else {
    chunk = chunks_.emplace_back(std::make_unique_for_overwrite<Chunk>()).get();
  }
  chunk->next = nullptr;
  chunk->count = 0;
  (bucket.last == nullptr ? bucket.first : bucket.last->next) = chunk;
  bucket.last = chunk;
}

void EventHeap::empty_bucket(Bucket& bucket) {
  if (bucket.first != bucket.last) {
    bucket.last->next = free_chunks_;
    free_chunks_ = bucket.first->next;
  }
  bucket.first->next = nullptr;
  bucket.first->count = 0;
  bucket.last = bucket.first;
  bucket.size = 0;
}

// Advances to the least time of the first bucket that is not empty. All of its items then belong to smaller
// buckets, which are empty, so the order of ties is kept.
void EventHeap::move_on() {
  due_.clear();
  next_ = 0;
  const auto first = static_cast<size_t>(std::countr_zero(filled_));
  filled_ &= filled_ - 1;
  Bucket& bucket = buckets_[first];
  actors::TimeNs least = bucket.first->items[0].at;
  for_each(bucket, [&](const Item& item) { least = std::min(least, item.at); });
  now_ = least;
  const bool is_soon = bucket.size <= kSoon, is_very_soon = bucket.size <= kVerySoon;
  for_each(bucket, [&](const Item& item) {
    if (is_very_soon && item.slot->touches != nullptr) {
      fetch_lines(item.slot->touches, kTouchedBytes);
    } else if (is_soon) {
      __builtin_prefetch(item.slot);
    }
    put(item);
  });
  empty_bucket(bucket);
}

// While this action runs, prefetches what the next action reaches through the memory that it touches.
void EventHeap::fetch_next() {
  constexpr size_t kNext = 2;
  auto fetch = [this](Slot* slot) {
    if (slot->touches != nullptr) slot->act(*this, slot, What::fetch);
  };
  if (next_ < due_.size()) return fetch(due_[next_].slot);
  if (filled_ == 0) return;
  const Bucket& soon = buckets_[static_cast<size_t>(std::countr_zero(filled_))];
  if (soon.size > kNext) return;
  for_each(soon, [&](const Item& item) { fetch(item.slot); });
}

void EventHeap::run_next() {
  if (next_ == due_.size()) move_on();
  Slot* slot = due_[next_++].slot;
  // If many actions are due at once, the later ones were not prefetched when their time was reached.
  if (next_ + kSoon <= due_.size()) __builtin_prefetch(due_[next_ + kSoon - 1].slot);
  if (next_ + kVerySoon <= due_.size()) {
    const void* touches = due_[next_ + kVerySoon - 1].slot->touches;
    if (touches != nullptr) fetch_lines(touches, kTouchedBytes);
  }
  fetch_next();
  ++executed_;
  slot->act(*this, slot, What::run);
}

}  // namespace shoal::sim
