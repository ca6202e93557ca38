// RankPlans: computes the plans of many ranks of one world, for a caller that checks them all. Each plan
// equals the result of plan_save. The plan of a rank whose class already has one costs a tenth, because only
// the offsets of its boxes are computed (plan/saving/plan_classes.h).
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "plan/saving/plan_classes.h"

namespace shoal::plan {

// One thread.
class RankPlans {
 public:
  // Precondition: validate_world(*world) is OK.
  RankPlans(std::shared_ptr<const World> world, const SaveOptions& options);
  ~RankPlans();

  // Like plan_save.
  Result<SavePlanPtr> plan(Rank rank);

 private:
  const std::shared_ptr<const World> world_;
  const SaveOptions options_;
  // nullptr if the world has too many shapes, meshes or layouts for its tables
  std::unique_ptr<PlanClasses> classes_;
  std::vector<bool> is_alone_;  // by layout: each of its ranks has a class to itself
  std::unordered_map<Hash128, SavePlanPtr> of_class_;
  size_t items_kept_ = 0;  // total number of items in these plans
};

}  // namespace shoal::plan
