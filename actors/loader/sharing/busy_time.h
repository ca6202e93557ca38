// BusyTime: the time during which at least one of several things is in progress.
#pragma once

#include <cstddef>
#include <cstdint>

#include "actors/ids.h"

namespace shoal::actors {

class BusyTime {
 public:
  void begin(TimeNs now) {
    if (in_progress_++ == 0) since_ = now;
  }
  void end(TimeNs now) {
    if (--in_progress_ == 0) sum_ += now - since_;
  }
  bool is_busy() const { return in_progress_ != 0; }
  uint64_t until(TimeNs now) const {
    return static_cast<uint64_t>(sum_ + (in_progress_ != 0 ? now - since_ : 0));
  }

 private:
  size_t in_progress_ = 0;
  TimeNs since_ = 0, sum_ = 0;
};

}  // namespace shoal::actors
