#include "actors/coordinator/plan_gather.h"

#include "base/rank_names.h"

namespace shoal::actors {

Result<PlanGather::Answer> PlanGather::take_offers(NodeId from, const wire::PlanGathering& message) {
  bool is_of_planner = false;
  for (const wire::PlanOfRank& plan : message.plans) {
    nodes_[plan.rank] = from;
    is_of_planner = is_of_planner || plan.rank == coordinator_rank_;
    if (is_made() || !offers_.emplace(plan.rank, plan.bytes).second) continue;
    bytes_ += plan.bytes->size();
    ++plans_taken_;
  }
  if (is_made()) return Answer{plan::GatherStage::delivered, {from}};
  if (bytes_ > plan::kMaxPlanGatherBytes) {
    return Status(Code::too_large, "the plans of " + std::to_string(offers_.size()) + " of " +
                                       std::to_string(message.world_size) + " ranks take " +
                                       human_bytes(bytes_) + ", but those of all ranks may take at most " +
                                       human_bytes(plan::kMaxPlanGatherBytes));
  }
  if (state_.is(PlanGatherState::gathering)) {
    if (offers_.size() != message.world_size) return Answer{};
    state_.on(PlanGatherTrigger::all_offered, counts_);
  } else if (!is_of_planner) {
    return Answer{};
  }
  return Answer{plan::GatherStage::gathered, {nodes_.at(coordinator_rank_)}};
}

Result<PlanGather::Answer> PlanGather::take_made(NodeId from, const wire::PlanGathering& message) {
  nodes_[coordinator_rank_] = from;
  if (is_made()) return Answer{plan::GatherStage::delivered, {from}};  // it has not received the answer yet
  for (const wire::PlanOfRank& plan : message.plans) {
    if (!made_.emplace(plan.rank, plan.bytes).second) continue;
    bytes_ += plan.bytes->size();
    ++plans_taken_;
  }
  if (bytes_ > 2 * plan::kMaxPlanGatherBytes) {
    return Status(Code::too_large,
                  "the global plan takes more than " + human_bytes(plan::kMaxPlanGatherBytes));
  }
  if (made_.size() < message.world_size) return Answer{};
  state_.on(PlanGatherTrigger::plans_made, counts_);
  offers_.clear();
  Answer answer{plan::GatherStage::delivered, {}};
  for (const auto& [rank, node] : nodes_) answer.to.insert(node);
  return answer;
}

std::vector<wire::PlanOfRank> PlanGather::plans_for(NodeId to, plan::GatherStage stage) const {
  std::vector<wire::PlanOfRank> plans;
  if (stage == plan::GatherStage::gathered) {
    for (const auto& [rank, plan] : offers_) plans.push_back({rank, plan});
  } else {
    for (const auto& [rank, plan] : made_) {
      auto node = nodes_.find(rank);
      if (node != nodes_.end() && node->second == to) plans.push_back({rank, plan});
    }
  }
  return plans;
}

std::string PlanGather::name_missing(const std::vector<Rank>& missing) const {
  if (!missing.empty()) {
    return base::name_ranks(missing) +
           (missing.size() == 1 ? " did not send its local plan" : " did not send their local plans");
  }
  return "the planner of rank " + std::to_string(coordinator_rank_) + " did not make the global plan";
}

}  // namespace shoal::actors
