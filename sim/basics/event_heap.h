// EventHeap: a priority queue of actions on virtual time.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "actors/role.h"

namespace shoal::sim {

// Prefetches the cache lines of these bytes. `from` may be null: nothing is prefetched then.
inline void fetch_lines(const void* from, size_t bytes) {
  if (from == nullptr) return;
  constexpr size_t kLine = 64;
  const auto* first = static_cast<const std::byte*>(from);
  for (size_t i = 0; i < bytes; i += kLine) __builtin_prefetch(first + i);
}

// A radix heap (Ahuja, Mehlhorn, Orlin, Tarjan: Faster algorithms for the shortest path problem, 1990). Time
// never goes back. So pending actions are sorted only by the highest bit in which their time differs from
// now, and are sorted again when time reaches them. Times are in nanoseconds. Actions at the same time run in
// the order in which they were scheduled. An action of up to kRoom bytes needs no allocation. One thread.
class EventHeap {
 public:
  static constexpr size_t kRoom = 48;

  EventHeap() = default;
  ~EventHeap();
  EventHeap(const EventHeap&) = delete;
  EventHeap& operator=(const EventHeap&) = delete;

  actors::TimeNs now() const { return now_; }
  uint64_t executed() const { return executed_; }
  bool empty() const { return next_ == due_.size() && filled_ == 0; }
  // Schedules an action at time `at`, or now if `at` has passed. `action` is called once, without arguments,
  // or destroyed with the heap. `touches`: the memory that the action reads first. The heap prefetches the
  // action and this memory shortly before it runs. If the action has a method fetch(), the heap then calls
  // it, to prefetch what `touches` leads to.
  template <class Action>
  void schedule(actors::TimeNs at, Action&& action, const void* touches = nullptr) {
    using Stored = std::decay_t<Action>;
    if constexpr (sizeof(Stored) <= kRoom && alignof(Stored) <= alignof(std::max_align_t)) {
      Slot* slot = take_slot();
      ::new (static_cast<void*>(slot->room)) Stored(std::forward<Action>(action));
      slot->act = &act<Stored>;
      slot->touches = touches;
      put({std::max(at, now_), slot});
    } else {
      schedule(
          at, [own = std::make_unique<Stored>(std::forward<Action>(action))] { (*own)(); }, touches);
    }
  }
  // Advances time to the next action and runs it. Precondition: not empty.
  void run_next();

 private:
  enum class What : uint8_t { run, drop, fetch };
  struct alignas(64) Slot {  // one cache line
    alignas(std::max_align_t) std::byte room[kRoom];
    void (*act)(EventHeap& heap, Slot* slot, What what);
    const void* touches;
  };
  struct Item {
    actors::TimeNs at;
    Slot* slot;
  };
  // Items in the order of scheduling. A list of chunks takes as much memory as it has items, whereas a vector
  // would keep its greatest size in each of the buckets that a million items pass through.
  struct Chunk {
    static constexpr size_t kItems = 255;
    Chunk* next;
    size_t count;
    Item items[kItems];
  };
  struct Bucket {
    Chunk* first = nullptr;  // stays when the bucket is empty
    Chunk* last = nullptr;
    size_t size = 0;
  };
  static constexpr size_t kBlock = 1024;  // slots per block; slots never move
  // Bucket n: bit n - 1 is the highest that differs from now. What is due now is in due_.
  static constexpr size_t kBuckets = 64;

  template <class Stored>
  static void act(EventHeap& heap, Slot* slot, What what) {
    auto* stored = std::launder(reinterpret_cast<Stored*>(slot->room));
    if (what == What::fetch) {
      if constexpr (requires { stored->fetch(); }) stored->fetch();
      return;
    }
    Stored action = std::move(*stored);
    stored->~Stored();
    heap.free_slots_.push_back(slot);
    if (what == What::run) action();
  }
  Slot* take_slot();
  void put(const Item& item) {
    const auto bucket = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(item.at ^ now_)));
    if (bucket == 0) return due_.push_back(item);
    Bucket& into = buckets_[bucket];
    if (into.last == nullptr || into.last->count == Chunk::kItems) add_chunk(into);
    into.last->items[into.last->count++] = item;
    ++into.size;
    filled_ |= uint64_t{1} << bucket;
  }
  void add_chunk(Bucket& bucket);
  void empty_bucket(Bucket& bucket);
  template <class Each>
  static void for_each(const Bucket& bucket, Each each) {
    for (const Chunk* chunk = bucket.first; chunk != nullptr; chunk = chunk->next) {
      for (size_t i = 0; i < chunk->count; ++i) each(chunk->items[i]);
    }
  }
  void move_on();
  void fetch_next();

  actors::TimeNs now_ = 0;
  uint64_t executed_ = 0;
  std::vector<Item> due_;                 // in the order of scheduling
  size_t next_ = 0;                       // index in due_; the actions before it have run
  std::array<Bucket, kBuckets> buckets_;  // the first is not used
  uint64_t filled_ = 0;                   // a bit per bucket that is not empty
  std::vector<std::unique_ptr<Chunk>> chunks_;
  Chunk* free_chunks_ = nullptr;
  std::vector<std::unique_ptr<Slot[]>> blocks_;
  std::vector<Slot*> free_slots_;
};

}  // namespace shoal::sim
