// The global plan of planners that make one, over the exchange of a collective save: each rank's local plan
// goes to coordinator_rank, whose planner makes the plans of all, and what a rank gets back is which of its
// own items it keeps.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plan/saving/plan_exchange.h"
#include "shoal/dcp/save_planner.h"
#include "shoal/status.h"

namespace shoal::dcp::internal {

// All plans, by rank, to those of all. An error names the step.
using GlobalStep = std::function<Result<std::vector<SavePlan>>(std::vector<SavePlan>)>;

// How bytes pass between the ranks of one save: offers `mine`, and returns this rank's part of what `make`
// gives on coordinator_rank. Called once a save, on the trainer's thread; waits for all ranks.
using MakePlans =
    std::function<Result<std::vector<plan::PlannerPlan>>(const std::vector<plan::PlannerPlan>& offered)>;
using ExchangePlans = std::function<Result<plan::PlannerPlan>(plan::PlannerPlan mine, const MakePlans& make)>;

// The step of a planner. Code::invalid_argument: not one plan for each rank.
GlobalStep global_step_of(SavePlanner& planner);

// This rank's final plan: items of `local`, as they are there. Code::invalid_argument, naming rank and item:
// the step gave a rank what its local plan has not.
Result<SavePlan> follow_global_plan(const SavePlan& local, const GlobalStep& step,
                                    const ExchangePlans& exchange);

// A planner that is given the exchange before its other steps.
class ExchangingPlanner : public LocalSavePlanner {
 public:
  virtual void use(SaveMode mode, ExchangePlans exchange) = 0;
};

}  // namespace shoal::dcp::internal
