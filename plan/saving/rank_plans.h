// RankPlans: the plans of many ranks of one world, for whoever checks them all. Each is what plan_save makes;
// that of a rank that writes like one before costs a tenth, for only the offsets of its boxes are worked out
// anew (plan/saving/plan_classes.h).
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

  // As plan_save.
  Result<SavePlanPtr> plan(Rank rank);

 private:
  const std::shared_ptr<const World> world_;
  const SaveOptions options_;
  std::unique_ptr<PlanClasses> classes_;  // null: too many shapes, meshes or layouts for tables of them
  std::vector<bool> alone_;               // by layout: its ranks write alike with nobody
  std::unordered_map<Hash128, SavePlanPtr> of_class_;
  size_t items_kept_ = 0;  // of these plans
};

}  // namespace shoal::plan
