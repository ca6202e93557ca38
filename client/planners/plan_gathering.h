// The global plan of planners in a collective save. Each rank sends its local plan to coordinator_rank, whose
// planner makes the plans of all ranks. Each rank gets back which of its own items it keeps.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plan/saving/plan_gathering.h"
#include "shoal/dcp/save_planner.h"
#include "shoal/status.h"

namespace shoal::dcp::internal {

// Gets and returns the plans of all ranks, by rank. An error names the planner's or storage's method.
using GlobalStep = std::function<Result<std::vector<SavePlan>>(std::vector<SavePlan>)>;

// Exchanges plans between the ranks of one save: offers `mine`, and returns this rank's part of the result of
// `make` on coordinator_rank. Called once per save, on the trainer's thread; waits for all ranks.
using MakePlans =
    std::function<Result<std::vector<plan::PlannerPlan>>(const std::vector<plan::PlannerPlan>& offered)>;
using ExchangePlans = std::function<Result<plan::PlannerPlan>(plan::PlannerPlan mine, const MakePlans& make)>;

// Calls the planner's create_global_plan. Code::invalid_argument: it did not return one plan for each rank.
GlobalStep global_step_of(SavePlanner& planner);

// This rank's final plan, with unchanged items of `local`. Code::invalid_argument names rank and item: the
// step assigned a rank an item that its local plan does not have.
Result<SavePlan> follow_global_plan(const SavePlan& local, const GlobalStep& step,
                                    const ExchangePlans& exchange);

// A planner that gets the exchange before its other steps are called.
class ExchangingPlanner : public LocalSavePlanner {
 public:
  virtual void use(SaveMode mode, ExchangePlans exchange) = 0;
};

}  // namespace shoal::dcp::internal
