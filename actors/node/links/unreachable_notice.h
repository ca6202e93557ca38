// UnreachableNotice: when a node logs that it cannot reach its coordinator. No I/O and no clock: time is an
// argument.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "actors/role.h"

namespace shoal::actors {

inline constexpr TimeNs kReportUnreachableFirstNs = 2'000 * kMillisecond;  // doubled after each line ...
inline constexpr TimeNs kReportUnreachableMostNs = 60'000 * kMillisecond;  // ... up to this

class UnreachableNotice {
 public:
  // The line that is due now. `address`: where the node looks for the coordinator; `cause`: of the last
  // failure.
  std::optional<std::string> due(TimeNs now, bool is_reached, const std::string& address,
                                 const std::string& cause) {
    if (is_reached) {
      since_.reset();
      return std::nullopt;
    }
    if (!since_) {
      since_ = now;
      pause_ = kReportUnreachableFirstNs;
      next_ = now + pause_;
    }
    if (now < next_) return std::nullopt;
    pause_ = std::min(2 * pause_, kReportUnreachableMostNs);
    next_ = now + pause_;
    const TimeNs seconds = (now - *since_) / (1'000 * kMillisecond);
    return "this node cannot reach the coordinator at " + address + " for " + std::to_string(seconds) +
           " s: " + cause + "; it tries again";
  }

 private:
  std::optional<TimeNs> since_;  // when it became unreachable; nullopt: it is reached
  TimeNs pause_ = 0, next_ = 0;
};

}  // namespace shoal::actors
