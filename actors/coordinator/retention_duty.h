// RetentionDuty: deletes checkpoints that no retention rule keeps, in the background. It runs one pass after
// each commit, never two at once, and a few deletions at a time. Saves and loads do not wait for it.
// docs/explanation/retention.md.
#pragma once

#include <cstddef>
#include <deque>
#include <string>

#include "actors/continuations.h"
#include "storage/retention/retention.h"

namespace shoal::actors {

inline constexpr size_t kMaxDeletionsInFlight = 2;

class RetentionDuty {
 public:
  RetentionDuty(PendingOperations& operations, PendingTimers& timers, const NodeConfig& config)
      : operations_(operations), timers_(timers), config_(config) {}

  // Called when a coordinator begins: completes deletions that were interrupted, whatever the policy.
  void begin(EffectWriter& out) { start_pass(out); }
  void committed(EffectWriter& out);  // called after each commit

 private:
  void start_pass(EffectWriter& out);
  void planned(TimeNs now, const storage::RetentionPlan& plan, EffectWriter& out);
  void pump(TimeNs now, EffectWriter& out);
  void start_deletion(EffectWriter& out);
  void start_removal(EffectWriter& out);
  void finished(TimeNs now, EffectWriter& out);
  void end_pass(TimeNs now, EffectWriter& out);

  PendingOperations& operations_;
  PendingTimers& timers_;
  const NodeConfig& config_;
  storage::LeaseWatch leases_;
  bool is_running_ = false, is_due_ = false;  // a pass runs; another must follow it
  bool must_look_again_ = false;  // files of a deleted checkpoint are still in use, or a lease is watched
  TimerId next_look_ = 0;
  std::deque<storage::RetentionPlan::Item> doomed_;
  std::deque<std::string> remains_;
  size_t in_flight_ = 0;
};

}  // namespace shoal::actors
