#include "actors/coordinator/retention_duty.h"

#include <utility>

#include "actors/publishing.h"
#include "base/rare_path.h"

namespace shoal::actors {

void RetentionDuty::committed(EffectWriter& out) {
  if (!config_.retention.any()) return;
  applies_rules_ = true;
  request_pass(out);
}

void RetentionDuty::end(EffectWriter& out) {
  state_.on(RetentionTrigger::superseded, counts_);
  doomed_.clear();
  remains_.clear();
  timers_.cancel(&next_look_, out);
}

void RetentionDuty::request_pass(EffectWriter& out) {
  if (state_.is(RetentionState::ended)) return;
  const bool is_idle = state_.is(RetentionState::idle);
  state_.on(RetentionTrigger::requested, counts_);
  if (is_idle) start_pass(out);
}

void RetentionDuty::start_pass(EffectWriter& out) {
  must_look_again_ = false;
  storage::RetentionPolicy policy = applies_rules_ ? config_.retention : storage::RetentionPolicy();
  policy.keep_tombstones = kTombstonesKept;
  operations_.start(
      operation::PlanRetention{policy}, out,
      [this](TimeNs now, Result<std::shared_ptr<const storage::RetentionPlan>> plan, EffectWriter& then_out) {
        if (state_.is(RetentionState::ended)) return;
        if (plan.ok()) return planned(now, **plan, then_out);
        then_out.warning("retention: " + plan.status().to_string());
        look_again_after(plan.status());
        end_pass(now, RetentionTrigger::could_not_plan, then_out);
      });
}

void RetentionDuty::planned(TimeNs now, const storage::RetentionPlan& plan, EffectWriter& out) {
  for (const storage::Mark& lease :
       leases_.ended({now, now}, config_.timeouts.lease_ttl_ms * kMillisecond, plan.leases)) {
    out.info("pin " + lease.name + " on " + to_string(lease.key) + " (" + lease.note + ") has ended");
    operations_.start(operation::RemovePin{lease.name, std::nullopt}, out,
                      [](TimeNs, Result<operation::Done> result, EffectWriter& then_out) {
                        if (!result.ok()) then_out.warning("retention: " + result.status().to_string());
                      });
  }
  must_look_again_ = !plan.leases.empty();
  doomed_.clear();
  for (const auto& [key, why] : plan.remove) doomed_.push_back({key, why});
  if (!plan.finish.empty()) base::rare_path<"coordinator: finishes the deletion of an earlier one">();
  for (const AttemptKey& key : plan.finish) doomed_.push_back({key, "an earlier deletion was not finished"});
  for (const AttemptKey& key : plan.forget) doomed_.push_back({key, "it was deleted", false});
  remains_.assign(plan.remains.begin(), plan.remains.end());
  state_.on(RetentionTrigger::planned, counts_);
  pump(now, out);
}

void RetentionDuty::pump(TimeNs now, EffectWriter& out) {
  while (in_flight_ < kMaxDeletionsInFlight && !doomed_.empty()) start_deletion(out);
  while (in_flight_ < kMaxDeletionsInFlight && !remains_.empty()) start_removal(out);
  if (in_flight_ == 0) end_pass(now, RetentionTrigger::deleted, out);
}

void RetentionDuty::start_deletion(EffectWriter& out) {
  Doomed item = std::move(doomed_.front());
  doomed_.pop_front();
  ++in_flight_;
  operations_.start(
      operation::DeleteCheckpoint{item.key, item.why, item.keeps_tombstone}, out,
      [this, item](TimeNs now, Result<storage::DeletionResult> deleted, EffectWriter& then_out) {
        if (!deleted.ok()) {
          base::rare_path<"coordinator: cannot delete a checkpoint">();
          then_out.warning(to_string(item.key) + ": " + deleted.status().to_string());
          look_again_after(deleted.status());
        } else if (deleted->outcome == storage::DeletionResult::Outcome::held) {
          must_look_again_ = true;
          then_out.info(to_string(item.key) + " is deleted, but its files stay for now: " + deleted->why);
        } else if (deleted->outcome == storage::DeletionResult::Outcome::gone && item.keeps_tombstone) {
          then_out.info(to_string(item.key) + " is deleted (" + item.why +
                        "): " + human_bytes(deleted->bytes) + " freed");
        }
        finished(now, then_out);
      });
}

void RetentionDuty::start_removal(EffectWriter& out) {
  std::string folder = std::move(remains_.front());
  remains_.pop_front();
  ++in_flight_;
  operations_.start(operation::RemoveRemains{folder}, out,
                    [this](TimeNs now, Result<operation::Done> result, EffectWriter& then_out) {
                      if (!result.ok()) {
                        then_out.warning("retention: " + result.status().to_string());
                        look_again_after(result.status());
                      }
                      finished(now, then_out);
                    });
}

// After an error of the storage, which may be better then. There may be no further commit.
void RetentionDuty::look_again_after(const Status& why) {
  must_look_again_ = must_look_again_ || !is_permanent(why);
}

void RetentionDuty::finished(TimeNs now, EffectWriter& out) {
  --in_flight_;
  if (!state_.is(RetentionState::ended)) pump(now, out);
}

void RetentionDuty::end_pass(TimeNs now, RetentionTrigger trigger, EffectWriter& out) {
  state_.on(trigger, counts_);
  if (!state_.is(RetentionState::idle)) return start_pass(out);
  if (!must_look_again_ || next_look_ != 0) return;
  next_look_ = timers_.set(
      now + config_.timeouts.lease_ttl_ms * kMillisecond / 2, out, [this](TimeNs, EffectWriter& then_out) {
        next_look_ = 0;
        if_current_(then_out, [this](TimeNs, EffectWriter& last_out) { request_pass(last_out); });
      });
}

}  // namespace shoal::actors
