// Session: saves in mode collective, whose trainer waits for its plan.
#include <fmt/format.h>

#include <utility>

#include "client/session/session.h"
#include "shoal/bytes.h"

namespace shoal::client {

namespace {

size_t bytes_of(const std::vector<plan::PlannerPlan>& plans) {
  size_t bytes = 0;
  for (const plan::PlannerPlan& plan : plans) bytes += plan->size();
  return bytes;
}

}  // namespace

template <class Ask>
Status Session::request_plan(const std::shared_ptr<SaveHandle::State>& save, Ask ask) {
  if (!lost_.ok()) return lost_;
  const SaveKey key{save->key.step, save->key.attempt};
  if (!undecided_.contains(key) && undecided_.size() >= kMaxUndecidedSaves) {
    return Status(Code::busy, fmt::format("{} saves are written and undecided: wait for one of them first",
                                          undecided_.size()));
  }
  send_message(ask);
  Record& record = undecided_[key];
  std::optional<local::PlanGathering> made = std::move(record.made);
  const auto* before = std::get_if<local::PlanGathering>(&record.offer);
  if (before && before->stage == plan::GatherStage::made) made = *before;
  record = Record{save, std::move(ask), nullptr, std::nullopt, std::move(made)};
  changed_.notify_all();
  return ok_status();
}

template <class Ready>
Status Session::wait_for_answer(std::unique_lock<std::mutex>& lock,
                                const std::shared_ptr<SaveHandle::State>& save, Ready&& ready) {
  const SaveKey key{save->key.step, save->key.attempt};
  bool is_known = true, is_ready = false;
  SHOAL_RETURN_IF_ERROR(wait_while_allowed(lock, Clock::time_point::max(), [&] {
    auto record = undecided_.find(key);
    is_known = record != undecided_.end() && record->second.save == save;
    is_ready = is_known && ready(record->second);
    if (!is_known || is_ready || !lost_.ok() || !trouble_.ok()) return true;
    std::lock_guard save_lock(save->mutex);
    return save->is_done;
  }));
  if (is_ready) return ok_status();
  if (is_known) undecided_.erase(key);
  if (!lost_.ok() || !trouble_.ok()) return lost_.ok() ? trouble_ : lost_;
  std::lock_guard save_lock(save->mutex);
  if (!save->outcome.ok()) return save->outcome;
  return Status(Code::aborted, to_string(save->key) + " was decided without this rank's plan");
}

Result<SavePlanPtr> Session::agree_on_plan(const std::shared_ptr<SaveHandle::State>& save,
                                           bool follows_planner) {
  std::unique_lock lock(mutex_);
  local::PlanRequest wanted{save->key.step, save->key.attempt, layout_->id(), {}, follows_planner};
  if (from_coordinator_ && from_coordinator_->layout_id == wanted.layout_id)
    wanted.known = assignment_id_of(*from_coordinator_);
  SHOAL_RETURN_IF_ERROR(request_plan(save, wanted));
  SavePlanPtr plan;
  SHOAL_RETURN_IF_ERROR(wait_for_answer(lock, save, [&](const Record& record) {
    plan = record.plan;
    return plan != nullptr;
  }));
  return plan;
}

Result<plan::PlannerPlan> Session::exchange_plans(const std::shared_ptr<SaveHandle::State>& save,
                                                  plan::PlannerPlan mine, const MakePlans& make) {
  local::PlanGathering message{
      save->key.step, save->key.attempt, plan::GatherStage::offered, options_.coordinator_rank,
      options_.save,  {std::move(mine)}};
  std::optional<local::PlanGathering> answer;
  std::unique_lock lock(mutex_);
  auto ask = [&](plan::GatherStage stage) -> Status {
    if (const size_t bytes = bytes_of(message.plans); bytes > plan::kMaxPlanGatherBytes) {
      return Status(
          Code::too_large,
          fmt::format("the plans for {} rank(s) have {}: at most {} can be exchanged", message.plans.size(),
                      human_bytes(bytes), human_bytes(plan::kMaxPlanGatherBytes)));
    }
    SHOAL_RETURN_IF_ERROR(request_plan(save, message));
    return wait_for_answer(lock, save, [&](const Record& record) {
      answer = record.plans;
      return answer && (answer->stage == plan::GatherStage::delivered || answer->stage == stage);
    });
  };
  SHOAL_RETURN_IF_ERROR(ask(plan::GatherStage::gathered));
  if (answer->stage == plan::GatherStage::gathered) {
    lock.unlock();
    SHOAL_ASSIGN_OR_RETURN(message.plans, make(answer->plans));
    message.stage = plan::GatherStage::made;
    lock.lock();
    SHOAL_RETURN_IF_ERROR(ask(plan::GatherStage::delivered));
  }
  return answer->plans.front();
}

Status Session::on_plan(const local::PlanUpdate& message) {
  std::lock_guard lock(mutex_);
  auto record = undecided_.find({message.step, message.attempt});
  if (record == undecided_.end() || !std::holds_alternative<local::PlanRequest>(record->second.offer)) {
    return ok_status();  // the save has ended
  }
  const auto& wanted = std::get<local::PlanRequest>(record->second.offer);
  SavePlanPtr plan = message.plan        ? message.plan
                     : from_coordinator_ ? under_roster(from_coordinator_, message.roster_id)
                                         : nullptr;
  if (!plan || plan->roster_id != message.roster_id || plan->rank != options_.rank ||
      plan->layout_id != wanted.layout_id) {
    return Status(Code::corrupt, "it sent a plan that does not belong to this rank");
  }
  record->second.plan = from_coordinator_ = std::move(plan);
  changed_.notify_all();
  return ok_status();
}

Status Session::on_plans(local::PlanGathering message) {
  std::lock_guard lock(mutex_);
  const bool is_notified = message.stage == plan::GatherStage::delivered;
  const bool is_gathered = message.stage == plan::GatherStage::gathered &&
                           options_.rank == options_.coordinator_rank &&
                           message.plans.size() == options_.world_size;
  if (!is_notified && !is_gathered) return Status(Code::corrupt, "it sent plans that are not for this rank");
  auto record = undecided_.find({message.step, message.attempt});
  if (record == undecided_.end() || !std::holds_alternative<local::PlanGathering>(record->second.offer)) {
    return ok_status();  // the save has ended, or does not wait for plans any more
  }
  record->second.plans = std::move(message);
  changed_.notify_all();
  return ok_status();
}

}  // namespace shoal::client
