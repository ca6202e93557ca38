#include <fmt/format.h>

#include <map>

#include "client/planners/item_codec.h"
#include "client/planners/plan_gathering.h"

namespace shoal::dcp::internal {

namespace {

bool same_item(const WriteItem& a, const WriteItem& b) {
  return a.index == b.index && a.type == b.type && a.tensor_data == b.tensor_data && a.per_rank == b.per_rank;
}

// The indices of the items of `plan` in the rank's local plan.
Result<PartOfPlan> part_of(const SavePlan& plan, const SavePlan& local, Rank rank) {
  std::multimap<MetadataIndex, uint32_t> numbers;
  for (uint32_t i = 0; i < local.items.size(); ++i) numbers.emplace(local.items[i].index, i);
  PartOfPlan part{{}, plan.storage_data, plan.planner_data};
  for (const WriteItem& item : plan.items) {
    auto [begin, end] = numbers.equal_range(item.index);
    while (begin != end && !same_item(local.items[begin->second], item)) ++begin;
    if (begin == end) {
      return Status(Code::invalid_argument,
                    fmt::format("the plan of rank {} has {} more often than its local plan", rank,
                                to_string(item.index)));
    }
    part.items.push_back(begin->second);
    numbers.erase(begin);
  }
  return part;
}

Result<std::vector<plan::PlannerPlan>> make_all(const std::vector<plan::PlannerPlan>& offered,
                                                const GlobalStep& step) {
  std::vector<SavePlan> local;
  for (Rank rank = 0; rank < offered.size(); ++rank) {
    Result<SavePlan> plan = decode_local_plan(as_view(*offered[rank]));
    if (!plan.ok()) return plan.status().with_context(fmt::format("rank {}", rank));
    local.push_back(std::move(plan).value());
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<SavePlan> made, step(local));
  if (made.size() != local.size()) {
    return Status(Code::invalid_argument,
                  fmt::format("it returned {} plans for {} ranks", made.size(), local.size()));
  }
  std::vector<plan::PlannerPlan> parts;
  for (Rank rank = 0; rank < made.size(); ++rank) {
    SHOAL_ASSIGN_OR_RETURN(const PartOfPlan part, part_of(made[rank], local[rank], rank));
    parts.push_back(std::make_shared<const std::string>(encode_part(part)));
  }
  return parts;
}

}  // namespace

GlobalStep global_step_of(SavePlanner& planner) {
  return [&planner](std::vector<SavePlan> all) -> Result<std::vector<SavePlan>> {
    Result<GlobalSavePlan> global = planner.create_global_plan(std::move(all));
    if (!global.ok()) return global.status().with_context("create_global_plan");
    return std::move(global->plans);
  };
}

Result<SavePlan> follow_global_plan(const SavePlan& local, const GlobalStep& step,
                                    const ExchangePlans& exchange) {
  SHOAL_ASSIGN_OR_RETURN(
      const plan::PlannerPlan notified,
      exchange(std::make_shared<const std::string>(encode_local_plan(local)),
               [&](const std::vector<plan::PlannerPlan>& offered) { return make_all(offered, step); }));
  SHOAL_ASSIGN_OR_RETURN(PartOfPlan part, decode_part(as_view(*notified)));
  SavePlan plan{{}, std::move(part.storage_data), std::move(part.planner_data)};
  for (uint32_t number : part.items) {
    if (number >= local.items.size())
      return Status(Code::corrupt, "a global plan names an item that does not exist");
    plan.items.push_back(local.items[number]);
  }
  return plan;
}

}  // namespace shoal::dcp::internal
