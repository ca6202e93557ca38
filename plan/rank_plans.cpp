#include "plan/rank_plans.h"

#include <set>
#include <utility>

namespace shoal {

namespace {

// PlanClasses keeps a table of each shape's places in its mesh, and looks for shapes one after the other.
constexpr size_t kMaxShapes = 256;
constexpr uint64_t kMaxPlaces = uint64_t{8} << 20;
constexpr size_t kMaxClasses = 1024;  // kept; ranks with explicit boxes are alone in theirs

bool has_few_shapes(const World& world) {
  std::set<std::pair<Dims, Dims>> shapes;  // of tensors and of their meshes
  uint64_t places = 0;
  for (const LayoutPtr& layout : world.layouts) {
    for (const LayoutEntry& entry : layout->entries()) {
      const auto mesh = mesh_of(entry);
      if (!mesh) continue;
      const Mesh& of = layout->meshes()[*mesh];
      if (!shapes.emplace(entry.shape, of.shape()).second) continue;
      places += of.size();
      if (shapes.size() > kMaxShapes || places > kMaxPlaces) return false;
    }
  }
  return true;
}

}  // namespace

RankPlans::RankPlans(std::shared_ptr<const World> world, const SaveOptions& options)
    : world_(std::move(world)), options_(options) {
  if (validate_options(options).ok() && has_few_shapes(*world_)) {
    classes_ = std::make_unique<PlanClasses>(*world_, options_);
  }
}

RankPlans::~RankPlans() = default;

Result<SavePlanPtr> RankPlans::plan(Rank rank) {
  if (!classes_ || rank >= world_->roster.world_size()) {
    SHOAL_ASSIGN_OR_RETURN(SavePlan plan, plan_save(*world_, rank, options_));
    return std::make_shared<const SavePlan>(std::move(plan));
  }
  const Hash128 like = classes_->place_of(rank).plan;
  auto known = of_class_.find(like);
  if (known == of_class_.end()) {
    if (of_class_.size() >= kMaxClasses) of_class_.clear();
    auto plan = std::make_shared<const SavePlan>(classes_->plan_of(rank));
    of_class_.emplace(like, plan);
    return SavePlanPtr(std::move(plan));
  }
  auto plan = std::make_shared<SavePlan>(*known->second);
  plan->rank = rank;
  plan->items = SharedVector<WriteItem>(classes_->moved(*known->second, rank));
  plan->share_id = {};
  plan->id = plan_id_of(*plan);
  return SavePlanPtr(std::move(plan));
}

}  // namespace shoal
