// LivedClock: time as the transport's thread has lived through it. When the process was stopped, or the
// machine would not run it, the clock has hardly moved: a peer's silence in that time was ours, and what it
// sent meanwhile gets its chance to be read before the peer is called lost.
#pragma once

#include <algorithm>
#include <cstdint>

namespace shoal::transport {

class LivedClock {
 public:
  // One step of the clock is at most `longest_step_ms`; the thread must call advance at least that often
  // while it waits for anything.
  explicit LivedClock(uint64_t longest_step_ms) : longest_step_ms_(longest_step_ms) {}

  // `monotonic_ms`: a clock that goes on while the process is stopped. Returns now().
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
