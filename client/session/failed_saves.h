// FailedSaves: which saves of a Checkpointer failed, and which of these failures no call has returned to the
// trainer yet. Each failure is returned once: by its handle, by the next save, or by wait_all or
// close. Otherwise the Checkpointer prints it when it ends.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "client/launch/save_report.h"
#include "shoal/metadata.h"
#include "shoal/roster.h"
#include "shoal/status.h"

namespace shoal::client {

// Any thread may call its methods. Handles share ownership and may outlive the Checkpointer.
class FailedSaves {
 public:
  using Callback = std::function<void(const AttemptKey&, const Status&)>;

  struct Failure {
    AttemptKey key;
    Status why;
  };
  struct Unreported {
    Failure first;
    uint64_t others = 0;  // number of further failures
  };

  FailedSaves(Rank rank, Callback callback, uint32_t most_in_a_row);
  FailedSaves(const FailedSaves&) = delete;

  Rank rank() const { return rank_; }

  void on_staged(const AttemptKey& key);
  void on_decided(const AttemptKey& key, const Status& outcome);
  void on_notified(const AttemptKey& key);  // the handle has returned the failure
  // The call of save itself returned the failure.
  void on_failed_call(const AttemptKey& key, const Status& why);
  // Saves that end from now on do not count as failed: the Checkpointer no longer learns their outcome.
  void stop_listening();

  // The failures that no call has returned, in the order of their saves. nullopt: there is none.
  std::optional<Unreported> unreported() const;
  // The same without the save `but`. The failures count as returned afterwards.
  std::optional<Unreported> take_unreported(const std::optional<AttemptKey>& but = std::nullopt);
  // Whether unreported() has a save that did not fail merely because another rank refused to save after a
  // failure.
  bool has_own_unreported() const;
  // Set once most_in_a_row saves have failed in a row.
  struct TooMany {
    uint32_t count = 0;
    Failure last;
  };
  std::optional<TooMany> too_many() const;

  // Calls the callback for each failure that on_decided got since the last call. Only one thread may call it.
  void call_back();

 private:
  void count_failure(const AttemptKey& key, const Status& why);

  const Rank rank_;
  const Callback callback_;
  const uint32_t most_in_a_row_;  // 0: no limit
  SaveReportWriter report_;       // to the launcher

  mutable std::mutex mutex_;
  std::map<AttemptKey, Failure> unreported_;
  std::deque<Failure> to_call_;
  uint32_t in_a_row_ = 0;
  std::optional<TooMany> too_many_;
  bool is_listening_ = true;
};

// "rank 0, step 7 (g1a1)".
std::string name_save(Rank rank, const AttemptKey& key);
// "the save of step 7 (g1a1) failed: ...; and 2 more failed".
std::string describe_unreported(const FailedSaves::Unreported& unreported);

// A part of the cause of a save that a rank refused after an earlier failure.
inline constexpr const char* kRefusedAfterFailure = "on_failed = refuse";

}  // namespace shoal::client
