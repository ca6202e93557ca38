// EventHeap: what happens when, on virtual time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "actors/role.h"

namespace shoal {

// A heap of four children a node; times in nanoseconds, ties by the order in which they were scheduled. An
// action of up to kRoom bytes takes no memory of its own. One thread.
class EventHeap {
 public:
  static constexpr size_t kRoom = 56;
  static constexpr uint64_t kMaxPending = uint64_t{1} << 24;

  EventHeap() = default;
  ~EventHeap();
  EventHeap(const EventHeap&) = delete;
  EventHeap& operator=(const EventHeap&) = delete;

  TimeNs now() const { return now_; }
  uint64_t executed() const { return executed_; }
  bool empty() const { return heap_.empty(); }
  // Not before now. `action` is called once, without arguments, or destroyed with the heap.
  template <class Action>
  void schedule(TimeNs at, Action&& action) {
    using Stored = std::decay_t<Action>;
    if constexpr (sizeof(Stored) <= kRoom && alignof(Stored) <= alignof(std::max_align_t)) {
      Slot& slot = push(at);
      ::new (static_cast<void*>(slot.room)) Stored(std::forward<Action>(action));
      slot.act = &act<Stored>;
    } else {
      schedule(at, [own = std::make_unique<Stored>(std::forward<Action>(action))] { (*own)(); });
    }
  }
  // Moves time on to the next action and runs it. Precondition: not empty.
  void run_next();

 private:
  enum class What : uint8_t { run, drop };
  struct Slot {
    alignas(std::max_align_t) std::byte room[kRoom];
    void (*act)(EventHeap& heap, uint32_t slot, What what);
  };
  struct Item {
    TimeNs at = 0;
    uint64_t order = 0;  // when it was scheduled, then its slot in the low 24 bits
    uint32_t slot() const { return static_cast<uint32_t>(order % kMaxPending); }
    bool before(const Item& other) const { return at != other.at ? at < other.at : order < other.order; }
  };
  static constexpr size_t kBlock = 1024;  // slots: they stay where they are

  template <class Stored>
  static void act(EventHeap& heap, uint32_t slot, What what) {
    auto* stored = std::launder(reinterpret_cast<Stored*>(heap.slot(slot).room));
    Stored action = std::move(*stored);
    stored->~Stored();
    heap.free_slots_.push_back(slot);
    if (what == What::run) action();
  }
  Slot& slot(uint32_t number) { return blocks_[number / kBlock][number % kBlock]; }
  Slot& push(TimeNs at);

  TimeNs now_ = 0;
  uint64_t sequence_ = 0;
  uint64_t executed_ = 0;
  std::vector<Item> heap_;
  std::vector<std::unique_ptr<Slot[]>> blocks_;
  std::vector<uint32_t> free_slots_;
};

}  // namespace shoal
