// LivedClock: the time during which the transport's thread was running. While the process is stopped or not
// scheduled, the clock hardly advances. A peer's silence in that time is this node's fault, and the transport
// reads what the peer sent meanwhile before it declares the peer lost.
#pragma once

#include <algorithm>
#include <cstdint>

namespace shoal::transport {

class LivedClock {
 public:
  // One step of the clock is at most `longest_step_ms`. The thread must call advance at least that often
  // while it waits.
  explicit LivedClock(uint64_t longest_step_ms) : longest_step_ms_(longest_step_ms) {}

  // `monotonic_ms`: from a clock that advances while the process is stopped. Returns now().
  uint64_t advance(uint64_t monotonic_ms) {
    if (has_begun_ && monotonic_ms > last_ms_)
      lived_ms_ += std::min(monotonic_ms - last_ms_, longest_step_ms_);
    if (!has_begun_ || monotonic_ms > last_ms_) last_ms_ = monotonic_ms;
    has_begun_ = true;
    return lived_ms_;
  }
  uint64_t now() const { return lived_ms_; }

 private:
  uint64_t longest_step_ms_;
  uint64_t last_ms_ = 0, lived_ms_ = 0;
  bool has_begun_ = false;
};

}  // namespace shoal::transport
