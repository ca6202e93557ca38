// PlanClasses: which ranks write alike. Their plans differ in rank and ids, and in where in a tensor their
// boxes lie; so a million of plans are a few hundred, each seen from many places.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "plan/saving/share_rule.h"

namespace shoal::plan {

// Not thread-safe. The world must pass validate_world; it is copied.
class PlanClasses {
 public:
  // What each place of a mesh holds of a tensor, which is the same for all worlds.
  class Geometries;
  static std::shared_ptr<Geometries> make_geometries();
  // `geometries`: of several PlanClasses, which work them out for each other. One thread.
  PlanClasses(const World& world, const SaveOptions& options,
              std::shared_ptr<Geometries> geometries = make_geometries());
  ~PlanClasses();

  // Equal classes: the plans have as many items, which are equal but for the offsets of their boxes, and
  // agree in tensor_bytes and files. Equal texts: besides, each offset has as many decimal digits, as a
  // shard's header writes them.
  // Costs a table look-up for each distinct sharding of the rank's layout.
  struct Place {
    Hash128 plan, text;
  };
  Place place_of(Rank rank);

  // The items of `rank`'s plan, from that of another rank of its class.
  std::vector<WriteItem> moved(const SavePlan& plan, Rank rank);

  SavePlan plan_of(Rank rank);  // what plan_save returns

  // Whether each rank that holds such an entry is alone in its class: explicit boxes, several devices a rank.
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
