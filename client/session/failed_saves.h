// FailedSaves: which saves of a Checkpointer failed, and which of these failures nobody has been told yet.
// Each is told once: by its handle, by the next save, by wait_all or close, else by a line as the
// Checkpointer ends.
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

// All methods by any thread. Handles share it, and may outlive the Checkpointer.
class FailedSaves {
 public:
  using Callback = std::function<void(const AttemptKey&, const Status&)>;

  struct Failure {
    AttemptKey key;
    Status why;
  };
  struct Untold {
    Failure first;
    uint64_t others = 0;  // failed as well
  };

  FailedSaves(Rank rank, Callback callback, uint32_t most_in_a_row);
  FailedSaves(const FailedSaves&) = delete;

  void on_staged(const AttemptKey& key);
  void on_decided(const AttemptKey& key, const Status& outcome);
  void on_told(const AttemptKey& key);  // of its failure, by its handle
  // The call of save itself failed, and said so.
  void on_failed_call(const AttemptKey& key, const Status& why);
  // From now on, a save that ends was given up, not failed: nobody knows what becomes of it.
  void stop_listening();

  // What nobody was told of, in the order in which it was saved.
  std::optional<Untold> untold() const;
  // The same, but of `but`; it counts as told from now on.
  std::optional<Untold> take_untold(const std::optional<AttemptKey>& but = std::nullopt);
  // Of those alone that failed of themselves: not because another rank refused to go on after a failure.
  bool has_own_untold() const;
  // How many saves in a row failed, once they are as many as may be; the last one's cause.
  struct TooMany {
    uint32_t count = 0;
    Failure last;
  };
  std::optional<TooMany> too_many() const;

  // Calls the callback for each failure that on_decided has heard of and it was not called for. By one
  // thread.
  void call_back();

 private:
  void count_failure(const AttemptKey& key, const Status& why);

  const Rank rank_;
  const Callback callback_;
  const uint32_t most_in_a_row_;  // 0: any number
  SaveReportWriter report_;       // to the launcher

  mutable std::mutex mutex_;
  std::map<AttemptKey, Failure> untold_;
  std::deque<Failure> to_call_;
  uint32_t in_a_row_ = 0;
  std::optional<TooMany> too_many_;
  bool is_listening_ = true;
};

// "rank 0: the save of step 7 (g1a1) failed: ...; and 2 more failed".
std::string describe_untold(Rank rank, const FailedSaves::Untold& untold);

// In the cause of a save that a rank refused after an earlier failure.
inline constexpr const char* kRefusedAfterFailure = "on_failed = refuse";

}  // namespace shoal::client
