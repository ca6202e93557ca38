// StreamLimit: how many large requests a client has at once. There is no limit until the store asks to slow
// down. Then it is half of those in flight, and grows by one for each so many that succeed.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>

namespace shoal::storage {

// Any thread.
class StreamLimit {
 public:
  // A request in flight. It waits for its turn.
  class Stream {
   public:
    explicit Stream(StreamLimit& limit) : limit_(limit), round_(limit.begin()) {}
    ~Stream() { limit_.end(); }
    Stream(const Stream&) = delete;
    void succeeded() { limit_.grow(); }
    void was_slowed() { limit_.shrink(round_); }

   private:
    StreamLimit& limit_;
    const uint64_t round_;
  };

  // The most streams at once now; infinite while the store has not asked to slow down.
  double most() const {
    std::lock_guard lock(mutex_);
    return most_;
  }

 private:
  uint64_t begin() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return in_flight_ < most_; });
    ++in_flight_;
    return round_;
  }
  void end() {
    std::lock_guard lock(mutex_);
    --in_flight_;
    changed_.notify_all();
  }
  void grow() {
    std::lock_guard lock(mutex_);
    most_ += 1 / most_;
    changed_.notify_all();
  }
  // Of the streams that were begun under one limit, only the first that is slowed lowers it.
  void shrink(uint64_t round) {
    std::lock_guard lock(mutex_);
    if (round != round_) return;
    ++round_;
    most_ = std::max(1.0, std::min(most_, static_cast<double>(in_flight_)) / 2);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t in_flight_ = 0;
  double most_ = std::numeric_limits<double>::infinity();
  uint64_t round_ = 0;
};

}  // namespace shoal::storage
