// RetentionDuty: deletes checkpoints that no retention rule keeps, in the background. It runs one pass after
// each commit, never two at once, and a few deletions at a time. Saves and loads do not wait for it.
// docs/explanation/retention.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "actors/continuations.h"
#include "base/state_machine.h"
#include "storage/retention/retention.h"

namespace shoal::actors {

inline constexpr size_t kMaxDeletionsInFlight = 2;
// A rank whose node has died asks the next node for the outcome of its saves in flight, which may be deleted
// by then. No save commits without this rank, so these saves are among the last few.
inline constexpr uint32_t kTombstonesKept = 16;

enum class RetentionState : uint8_t {
  idle,            // No pass runs. A timer may be set for the next one.
  planning,        // The node reads from the root what no rule keeps.
  planning_again,  // Like `planning`. Another pass follows, because one was requested meanwhile.
  deleting,        // The node deletes checkpoints, and what deletions left behind.
  deleting_again,  // Like `deleting`. Another pass follows, because one was requested meanwhile.
  ended,  // A later coordinator applies its own rules. Deletions that have begun end; no other begins.
};
enum class RetentionTrigger : uint8_t {
  requested,       // a coordinator begins, a checkpoint is committed, or the timer of the last pass ends
  planned,         // the plan of this pass is here
  could_not_plan,  // the root could not be read: the pass ends
  deleted,         // nothing remains to be deleted: the pass ends
  superseded,      // a later epoch exists
};

inline constexpr auto kRetentionTransitions = [] {
  using S = RetentionState;
  using T = RetentionTrigger;
  return std::to_array<base::Transition<S, T>>({
      {S::idle, T::requested, S::planning},
      {S::idle, T::superseded, S::ended},
      {S::planning, T::requested, S::planning_again},
      {S::planning, T::planned, S::deleting},
      {S::planning, T::could_not_plan, S::idle},
      {S::planning, T::superseded, S::ended},
      {S::planning_again, T::requested, S::planning_again},
      {S::planning_again, T::planned, S::deleting_again},
      {S::planning_again, T::could_not_plan, S::planning},
      {S::planning_again, T::superseded, S::ended},
      {S::deleting, T::requested, S::deleting_again},
      {S::deleting, T::deleted, S::idle},
      {S::deleting, T::superseded, S::ended},
      {S::deleting_again, T::requested, S::deleting_again},
      {S::deleting_again, T::deleted, S::planning},
      {S::deleting_again, T::superseded, S::ended},
  });
}();
using RetentionMachine = base::StateMachine<kRetentionTransitions>;

class RetentionDuty {
 public:
  // Calls `act` after a look at the root, unless a later epoch exists: then it calls nothing, and end()
  // comes.
  using IfCurrent =
      std::function<void(EffectWriter& out, std::function<void(TimeNs now, EffectWriter& out)> act)>;

  RetentionDuty(PendingOperations& operations, PendingTimers& timers, const NodeConfig& config,
                IfCurrent if_current)
      : operations_(operations), timers_(timers), config_(config), if_current_(std::move(if_current)) {}

  // Called when a coordinator begins: completes deletions that were interrupted. It applies no rule yet: the
  // job may be about to load a checkpoint that the rules let go, because a newer one is damaged.
  void begin(EffectWriter& out) { request_pass(out); }
  void committed(EffectWriter& out);  // called after each commit: from then on the rules apply
  void end(EffectWriter& out);        // a later coordinator exists. Its rules may keep more
  const RetentionMachine::Counts& counts() const { return counts_; }

 private:
  void request_pass(EffectWriter& out);
  void start_pass(EffectWriter& out);
  void planned(TimeNs now, const storage::RetentionPlan& plan, EffectWriter& out);
  void pump(TimeNs now, EffectWriter& out);
  void start_deletion(EffectWriter& out);
  void start_removal(EffectWriter& out);
  void look_again_after(const Status& why);
  void finished(TimeNs now, EffectWriter& out);
  void end_pass(TimeNs now, RetentionTrigger trigger, EffectWriter& out);

  PendingOperations& operations_;
  PendingTimers& timers_;
  const NodeConfig& config_;
  const IfCurrent if_current_;
  storage::LeaseWatch leases_;
  RetentionMachine state_{RetentionState::idle};
  RetentionMachine::Counts counts_;
  bool applies_rules_ = false;  // a checkpoint was committed in this coordinator's term
  // Files of a deleted checkpoint are still in use, a lease is watched, or the root failed.
  bool must_look_again_ = false;
  TimerId next_look_ = 0;
  struct Doomed {
    AttemptKey key;
    std::string why;
    bool keeps_tombstone = true;
  };
  std::deque<Doomed> doomed_;
  std::deque<std::string> remains_;
  size_t in_flight_ = 0;
};

}  // namespace shoal::actors
