#include "plan/saving/rank_plans.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

namespace shoal::plan {

namespace {

// PlanClasses keeps a table of what each place of a mesh holds of each shape, searches shapes and meshes
// linearly, and keeps an index of all values per layout. Beyond these bounds each rank is planned by the rule
// alone.
constexpr size_t kMaxShapes = 256;
constexpr size_t kMaxMeshes = 64;  // of a layout
constexpr uint64_t kMaxPlaces = uint64_t{8} << 20;
constexpr uint64_t kMaxSites = uint64_t{16} << 20;  // entries of all layouts together, counted per layout
constexpr size_t kMaxItems = size_t{1} << 20;       // in all cached plans, one per class

bool is_regular(const World& world) {
  uint64_t entries = 0;
  for (const LayoutPtr& layout : world.layouts) {
    entries += layout->entries().size();
    if (layout->meshes().size() > kMaxMeshes) return false;
  }
  if (entries > kMaxSites / world.layouts.size()) return false;
  std::set<std::tuple<Dims, std::vector<Placement>, Dims>> shapes;  // and their placements in which mesh
  uint64_t places = 0;
  for (const LayoutPtr& layout : world.layouts) {
    for (const LayoutEntry& entry : layout->entries()) {
      const auto mesh = mesh_of(entry);
      if (!mesh) continue;
      const auto* sharding = std::get_if<MeshSharding>(&entry.sharding);
      const Mesh& of = layout->meshes()[*mesh];
      const bool is_new =
          shapes.emplace(entry.shape, sharding ? sharding->placements : std::vector<Placement>(), of.shape())
              .second;
      if (!is_new) continue;
      places += of.size();
      if (shapes.size() > kMaxShapes || places > kMaxPlaces) return false;
    }
  }
  return true;
}

}  // namespace

RankPlans::RankPlans(std::shared_ptr<const World> world, const SaveOptions& options)
    : world_(std::move(world)), options_(options) {
  if (!validate_options(options).ok() || !is_regular(*world_)) return;
  classes_ = std::make_unique<PlanClasses>(*world_, options_);
  for (const LayoutPtr& layout : world_->layouts) {
    const auto& entries = layout->entries();
    is_alone_.push_back(std::any_of(entries.begin(), entries.end(), PlanClasses::is_alone));
  }
}

RankPlans::~RankPlans() = default;

Result<SavePlanPtr> RankPlans::plan(Rank rank) {
  if (!classes_ || rank >= world_->roster.world_size() || is_alone_[world_->roster.layout_of(rank)]) {
    SHOAL_ASSIGN_OR_RETURN(SavePlan plan, plan_save(*world_, rank, options_));
    return std::make_shared<const SavePlan>(std::move(plan));
  }
  const Hash128 like = classes_->place_of(rank).plan;
  auto known = of_class_.find(like);
  if (known == of_class_.end()) {
    auto plan = std::make_shared<const SavePlan>(classes_->plan_of(rank));
    if (items_kept_ + plan->items.size() > kMaxItems) {
      of_class_.clear();
      items_kept_ = 0;
    }
    items_kept_ += plan->items.size();
    of_class_.emplace(like, plan);
    return SavePlanPtr(std::move(plan));
  }
  auto plan = std::make_shared<SavePlan>(*known->second);
  plan->rank = rank;
  plan->items = SharedVector<WriteItem>(classes_->moved(*known->second, rank));
  plan->assignment_id = {};
  plan->id = plan_id_of(*plan);
  return SavePlanPtr(std::move(plan));
}

}  // namespace shoal::plan
