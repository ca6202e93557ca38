// What to do if a decision or a roster could not be published: whether to try again, and for how long.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "actors/effect_writer.h"
#include "actors/giving_up.h"

namespace shoal::actors {

// Whether another try would fail likewise: no permission, a read-only or vanished root, a damaged record
// under that name, a value that is rejected.
inline bool is_permanent(const Status& why) {
  switch (why.code()) {
    case Code::invalid_argument:
    case Code::not_found:
    case Code::refused:
    case Code::corrupt:
    case Code::version:
    case Code::too_large:
      return true;
    default:
      return false;
  }
}

inline operation::PublishDecision abort_of(const AttemptKey& key, GiveUp why, std::string cause) {
  return {key,
          std::make_shared<const storage::DecisionBody>(
              storage::Tombstone{storage::Tombstone::Reason::aborted, std::move(cause)}),
          looks_at_root_first(why), why};
}

// How long a coordinator tries to record an abort before it sends `undecided`. The nodes then report the
// failed save to their trainers and try themselves. A node tries as long for an attempt that no client waits
// for.
inline constexpr TimeNs kAbortPatience = 3'000 * kMillisecond;

// Back-off between tries, until the first failure is `attempt_deadline_ms` old.
class PublishRetries {
 public:
  explicit PublishRetries(const Timeouts& timeouts)
      : backoff_(timeouts), patience_(timeouts.attempt_deadline_ms * kMillisecond) {}

  // When to try again after `why`; 0: not at all. `patience` is a shorter bound than attempt_deadline_ms.
  TimeNs next_at(TimeNs now, const Status& why) { return next_at(now, why, patience_); }
  TimeNs next_at(TimeNs now, const Status& why, TimeNs patience) {
    if (first_failure_ < 0) first_failure_ = now;
    if (is_permanent(why) || now - first_failure_ >= std::min(patience, patience_)) return 0;
    return now + backoff_.next();
  }

 private:
  Backoff backoff_;
  TimeNs patience_;
  TimeNs first_failure_ = -1;
};

}  // namespace shoal::actors
