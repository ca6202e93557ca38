// LineBudget: bounds the number of log lines of one kind, no matter who causes them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "actors/role.h"

namespace shoal::actors {

class LineBudget {
 public:
  // Allows `at_once` lines, and one more every `refill_ms`.
  LineBudget(uint32_t at_once, uint32_t refill_ms)
      : refill_(refill_ms * kMillisecond), most_(at_once * refill_), left_(most_) {}

  // How many lines were left out since the last one that was written; nullopt: leave this one out too.
  std::optional<uint64_t> take(TimeNs now) {
    if (last_ != 0) left_ = std::min(most_, left_ + (now - last_));
    last_ = now;
    if (left_ < refill_) {
      ++left_out_;
      return std::nullopt;
    }
    left_ -= refill_;
    uint64_t left_out = left_out_;
    left_out_ = 0;
    return left_out;
  }

 private:
  TimeNs refill_, most_, left_;
  TimeNs last_ = 0;
  uint64_t left_out_ = 0;
};

}  // namespace shoal::actors
