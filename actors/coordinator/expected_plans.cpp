#include "actors/coordinator/expected_plans.h"

#include <string>

namespace shoal::actors {

Result<const ExpectedPlans::Expected*> ExpectedPlans::expected(Rank rank) {
  if (!ranks_[rank].known) {
    SHOAL_RETURN_IF_ERROR(plan_of(rank).status());
  }
  return &ranks_[rank];
}

Result<SavePlanPtr> ExpectedPlans::plan_unless(Rank rank, const PlanId& known) {
  if (ranks_[rank].known && ranks_[rank].part_id == known) return SavePlanPtr();
  SHOAL_ASSIGN_OR_RETURN(SavePlanPtr plan, plan_of(rank));
  return ranks_[rank].part_id == known ? SavePlanPtr() : plan;
}

Result<SavePlanPtr> ExpectedPlans::plan_of(Rank rank) {
  if (!plans_) plans_ = source_->plans_of(world_, options_);
  SHOAL_ASSIGN_OR_RETURN(SavePlanPtr plan, plans_->plan(rank));
  // Only collective saves ask whether a rank has its plan already.
  const PlanId part_id = options_.mode == SaveMode::collective ? assignment_id_of(*plan) : PlanId{};
  ranks_known_ += !ranks_[rank].known;
  ranks_[rank] = {true, plan->id, part_id, plan->files, plan->tensor_bytes};
  if (ranks_known_ == ranks_.size()) plans_.reset();
  return plan;
}

Status ExpectedPlans::check(const wire::ShardsWritten& report) {
  const RosterId& roster_id = world_->roster.id();
  if (report.roster_id != roster_id) {
    return Status(Code::aborted, "ranks from " +
                                     std::to_string(report.plans.empty() ? 0 : report.plans[0].rank) +
                                     " on saved under roster " + report.roster_id.short_hex() +
                                     ", but roster " + roster_id.short_hex() + " is in force");
  }
  size_t next_file = 0;
  for (const wire::RankPlan& plan : report.plans) {
    const std::string name = "rank " + std::to_string(plan.rank);
    if (plan.rank >= ranks_.size()) {
      return Status(Code::aborted,
                    name + " is outside a world of " + std::to_string(ranks_.size()) + " ranks");
    }
    SHOAL_ASSIGN_OR_RETURN(const Expected* rule, expected(plan.rank));
    if (plan.plan_id != rule->id) {
      return Status(Code::aborted, name + " saved by plan " + plan.plan_id.short_hex() +
                                       ", but the rule gives it " + rule->id.short_hex());
    }
    uint64_t payload_bytes = 0;
    for (uint32_t index = 0; index < rule->files; ++index, ++next_file) {
      if (next_file >= report.files.size() || report.files[next_file].rank != plan.rank ||
          report.files[next_file].index != index) {
        return Status(Code::aborted,
                      name + " reports, but lacks its file " + shard_file_name(plan.rank, index));
      }
      payload_bytes += report.files[next_file].payload_bytes;
    }
    if (payload_bytes < rule->tensor_bytes) {
      return Status(Code::aborted, name + " wrote " + std::to_string(payload_bytes) +
                                       " bytes, but its plan has " + std::to_string(rule->tensor_bytes) +
                                       " for tensors alone");
    }
  }
  if (next_file != report.files.size()) {
    return Status(Code::aborted, "a report names files that no plan of its ranks has");
  }
  return ok_status();
}

Result<bool> ExpectedPlans::same_pieces(const ExpectedPlans& other, Rank rank) const {
  if (world_->layout_of(rank).id() != other.world_->layout_of(rank).id()) return false;
  SHOAL_ASSIGN_OR_RETURN(SavePlan here, plan_save(*world_, rank, options_));
  SHOAL_ASSIGN_OR_RETURN(SavePlan there, plan_save(*other.world_, rank, other.options_));
  return here.items == there.items;
}

}  // namespace shoal::actors
