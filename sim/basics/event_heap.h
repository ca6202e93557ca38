// EventHeap: what happens when, on virtual time.
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

// Into the cache, all lines on which these bytes lie; from may be null.
inline void fetch_lines(const void* from, size_t bytes) {
  constexpr size_t kLine = 64;
  const auto* first = static_cast<const std::byte*>(from);
  for (size_t i = 0; i < bytes; i += kLine) __builtin_prefetch(first + i);
}

// A radix heap (Ahuja, Mehlhorn, Orlin, Tarjan: Faster algorithms for the shortest path problem, 1990): time
// only moves on, so what is pending is sorted no finer than the highest bit in which its time differs from
// now, and again when time comes to it. Times in nanoseconds, ties in the order in which they were scheduled.
// An action of up to kRoom bytes takes no memory of its own. One thread.
class EventHeap {
 public:
  static constexpr size_t kRoom = 48;

  EventHeap() = default;
  ~EventHeap();
  EventHeap(const EventHeap&) = delete;
  EventHeap& operator=(const EventHeap&) = delete;

  actors::TimeNs now() const { return now_; }
  uint64_t executed() const { return executed_; }
  bool empty() const { return next_ == buckets_[0].size() && filled_ == 0; }
  // Now, where `at` has passed. `action` is called once, without arguments, or destroyed with the heap.
  // `touches`: what it will read first; fetched into the cache shortly before, as the action itself is. Then
  // what action.fetch() fetches by way of that, if it has such a method.
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
  // Moves time on to the next action and runs it. Precondition: not empty.
  void run_next();

 private:
  enum class What : uint8_t { run, drop, fetch };
  struct alignas(64) Slot {  // a cache line
    alignas(std::max_align_t) std::byte room[kRoom];
    void (*act)(EventHeap& heap, Slot* slot, What what);
    const void* touches;
  };
  struct Item {
    actors::TimeNs at = 0;
    Slot* slot = nullptr;
  };
  static constexpr size_t kBlock = 1024;  // slots: they stay where they are
  static constexpr size_t kBuckets = 64;  // 0: now; n: bit n - 1 is the highest that differs from now

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
    buckets_[bucket].push_back(item);
    if (bucket != 0) filled_ |= uint64_t{1} << bucket;
  }
  void move_on();
  void fetch_next();

  actors::TimeNs now_ = 0;
  uint64_t executed_ = 0;
  std::array<std::vector<Item>, kBuckets> buckets_;  // each in the order in which it was scheduled
  size_t next_ = 0;                                  // of bucket 0: those before have run
  uint64_t filled_ = 0;                              // which of the others are not empty, a bit each
  std::vector<std::unique_ptr<Slot[]>> blocks_;
  std::vector<Slot*> free_slots_;
};

}  // namespace shoal::sim
