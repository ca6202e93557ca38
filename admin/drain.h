// Drain: copies what jobs commit in a fast root to another one, which is slower and durable and has retention
// rules of its own. docs/decisions/053-a-drain-follows-the-root.md.
//
// A drain reads its state from the two roots, so one that was killed is continued by the next one. It copies
// the newest checkpoint first, and only what the rules of the target keep: with `keep_last`, a drain that has
// fallen behind passes over what the rules would delete at once. While a checkpoint is copied, the retention
// of the source cannot delete it (CheckpointCopier pins it); until then it can, and the drain reports that.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "admin/checkpoint_copy.h"
#include "admin/collector.h"
#include "admin/root_reader.h"
#include "shoal/metadata.h"
#include "shoal/status.h"
#include "storage/retention/retention.h"

namespace shoal::admin {

// Pauses after failures double from the first to the longest.
inline constexpr int64_t kFirstDrainPauseNs = 1'000'000'000;
inline constexpr int64_t kLongestDrainPauseNs = 60 * kFirstDrainPauseNs;

struct DrainOptions {
  storage::RetentionPolicy retention;  // of the target
  unsigned jobs = kDefaultCopyJobs;    // files in flight
  uint32_t lease_ttl_ms = CollectorOptions().lease_ttl_ms;
  std::function<bool()> keeps_going = [] { return true; };  // any thread; false ends a copy
  std::function<int64_t()> now_ns = monotonic_now_ns;
};

// What a look at the source has found since the look before.
struct DrainNews {
  // Deleted at the source before they were copied, although the rules of the target keep them.
  std::vector<AttemptKey> lost;
  uint64_t passed_over = 0;  // checkpoints that the rules of the target would not keep
  std::vector<std::pair<AttemptKey, Status>> unreadable;  // at the source; each is reported once
  size_t unreadable_now = 0;                              // also those reported before
};

// One thread.
class Drain {
 public:
  using Open = std::function<Result<OpenRoot>()>;
  // Each look opens the roots; one in an object store only the first time and after a failure.
  Drain(Open open_source, Open open_target, DrainOptions options = {})
      : open_source_(std::move(open_source)),
        open_target_(std::move(open_target)),
        options_(std::move(options)) {}

  // Finds out what is to be copied. After an error the caller waits until resumes_at_ns().
  Result<DrainNews> look();
  // The newest checkpoint to copy now. nullopt: there is none, or the pause after its failure has not ended.
  std::optional<AttemptKey> next() const;
  // Copies what next() returned. A failed copy is tried again after a pause.
  CopyResult copy(const AttemptKey& key, std::atomic<uint64_t>* bytes_done);
  // Deletes from the target what its rules do not keep, and ends the leases of processes that have ended.
  // REQUIRES: a look has succeeded, and no copy has failed with `ends_all` since.
  Status apply_rules(Collected* collected);

  // Until then a root that failed is left alone.
  int64_t resumes_at_ns() const { return resumes_at_ns_; }
  // Checkpoints to copy, also those whose copy has failed.
  size_t pending() const { return wanted_.size(); }
  // Of these, those without a failed try since forget_failures().
  size_t untried() const;
  // All that is pending is tried again at once.
  void forget_failures();

 private:
  // The pause doubles with each failure.
  struct Pause {
    int64_t length_ns = 0, ends_at_ns = 0;
    void extend(int64_t now_ns);
  };
  struct Wanted {
    int64_t committed_ns = 0;  // known only if a rule needs it
    Pause pause;
  };

  Status open_roots();
  void close_roots();
  Status find_new(const storage::AttemptNames& names, DrainNews* news);
  Status want(const AttemptKey& key);
  void pass_over_what_no_rule_keeps(DrainNews* news);

  const Open open_source_, open_target_;
  const DrainOptions options_;
  std::optional<OpenRoot> source_, target_;
  std::optional<RootId> source_id_;  // of the last look
  std::optional<RootId> target_id_;  // of the first look
  std::set<AttemptKey> at_target_;   // its checkpoints
  std::set<AttemptKey> settled_;     // of the source: need no further look
  std::set<AttemptKey> reported_;    // as unreadable
  std::map<AttemptKey, Wanted> wanted_;
  int64_t resumes_at_ns_ = 0;
  Pause pause_;
  storage::KnownAttempts known_;  // of the target
  storage::LeaseWatch leases_;
};

}  // namespace shoal::admin
