// SharedPlans: the plans of all ranks of a simulation, each worked out once for whoever asks: the rank's
// trainer, its writer and the coordinator.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "actors/role.h"

namespace shoal {

class SharedPlans final : public PlanSource {
 public:
  Result<SavePlanPtr> plan(const World& world, Rank rank, const SaveOptions& options) override {
    SHOAL_CHECK(plans_.empty() || options == options_);  // one set a job
    options_ = options;
    std::vector<SavePlanPtr>& plans = plans_[world.roster.id()];
    plans.resize(world.roster.world_size());
    if (!plans[rank]) {
      SHOAL_ASSIGN_OR_RETURN(SavePlan made, plan_save(world, rank, options));
      plans[rank] = std::make_shared<const SavePlan>(std::move(made));
    }
    return plans[rank];
  }

 private:
  SaveOptions options_;
  std::unordered_map<RosterId, std::vector<SavePlanPtr>> plans_;  // by rank
};

}  // namespace shoal
