// PlanClasses: groups ranks whose plans are alike. Such plans differ only in rank, ids and the offsets of
// their boxes. So the plans of a million ranks fall into a few hundred classes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "plan/saving/save_rule.h"

namespace shoal::plan {

// Not thread-safe. The world is copied and must pass validate_world.
class PlanClasses {
 public:
  // What each place of a mesh holds of a tensor. Independent of the world.
  class Geometries;
  static std::shared_ptr<Geometries> make_geometries();
  // Several PlanClasses may share `geometries`, so that each is computed once. One thread.
  PlanClasses(const World& world, const SaveOptions& options,
              std::shared_ptr<Geometries> geometries = make_geometries());
  ~PlanClasses();

  // Ranks with equal `plan` have plans with the same number of items. The items are equal except for the
  // offsets of their boxes, and tensor_bytes and files are equal. Ranks with equal `text` also have offsets
  // with equally many decimal digits, so their shard headers have the same length. Costs one table look-up
  // per distinct sharding of the rank's layout.
  struct Place {
    Hash128 plan, text;
  };
  Place place_of(Rank rank);

  // Computes the items of `rank`'s plan from the plan of another rank of its class.
  std::vector<WriteItem> moved(const SavePlan& plan, Rank rank);

  SavePlan plan_of(Rank rank);  // equals the result of plan_save

  // Whether every rank that holds such an entry has a class to itself: explicit boxes, or several devices per
  // rank.
  static bool is_alone(const LayoutEntry& entry);

 private:
  struct Seen;
  struct Geometry;
  struct Units;
  struct Group;
  struct OfLayout;
  struct Scratch;

  OfLayout& of_layout(uint32_t layout);
  void add_entry(OfLayout& of, uint32_t layout, uint32_t entry);
  void place_in_groups(OfLayout& of, Rank rank);
  Units units_of(OfLayout& of, Rank rank, const RankSet& group, Hash128 sizes);

  const World world_;
  const SaveOptions options_;
  std::vector<std::unique_ptr<OfLayout>> layouts_;
  const std::shared_ptr<Geometries> geometries_;
  const std::unique_ptr<Scratch> scratch_;
};

}  // namespace shoal::plan
