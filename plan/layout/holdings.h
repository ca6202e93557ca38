// Holdings: which ranks hold which value, over all layouts of a world. Every part of the planning rule starts
// here.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/geometry/rank_set.h"
#include "shoal/roster.h"

namespace shoal::plan {

// One entry of one layout of the world.
struct Site {
  uint32_t layout = 0;
  uint32_t entry = 0;
};

// The values of a world, ascending by fqn, each with its sites by ascending layout. The number of a value is
// its position.
class FqnIndex {
 public:
  static FqnIndex of_world(const World& world);
  // Only the values of one layout, so that numbers are positions of its entries. Each has its sites in all
  // layouts.
  static FqnIndex of_layout(const World& world, uint32_t layout);

  uint32_t size() const { return static_cast<uint32_t>(fqns_.size()); }
  std::string_view fqn(uint32_t value) const { return fqns_[value]; }
  std::span<const Site> sites(uint32_t value) const {
    return std::span(sites_).subspan(starts_[value], starts_[value + 1] - starts_[value]);
  }
  std::optional<uint32_t> find(std::string_view fqn) const;

 private:
  static FqnIndex with_sites(const World& world, std::vector<std::string_view> names);

  std::vector<std::string_view> fqns_;  // views into the layouts
  std::vector<uint32_t> starts_;        // into sites_; one element more than values
  std::vector<Site> sites_;
};

// One sharding of a value, shared by all layouts with an identical entry. Values with explicit boxes and
// per-rank values have one instance for all layouts.
struct Instance {
  const LayoutEntry* entry = nullptr;  // of any of these layouts
  const Mesh* mesh = nullptr;          // nullptr for explicit boxes and for per-rank values
  uint32_t devices_per_rank = 1;       // above 1: a mesh of devices
  uint32_t mesh_number = 0;            // equal for equal meshes with equal devices_per_rank
  uint32_t layouts_number = 0;         // equal for equal sets of layouts
  Rank rank_at(std::span<const uint64_t> coordinate) const {
    return mesh->rank_at(coordinate) / devices_per_rank;
  }
};
std::span<const Placement> placements_of(const Instance& instance);
// The hash by which instances are ordered, and that of its mesh (docs/explanation/planning.md, section 3).
// The entry has a mesh, whose hash_mesh is given.
Hash128 hash_mesh(const Mesh& mesh);
Hash128 hash_sharding(const LayoutEntry& entry, const Hash128& mesh_hash);
// sharded_dims: the mesh dimensions that do not replicate. cell_of: row-major number of a coordinate over
// these dimensions.
std::vector<bool> sharded_dims(const Instance& instance);
uint64_t cell_of(const Instance& instance, const std::vector<bool>& sharded,
                 std::span<const uint64_t> coordinate);

struct ValueHoldings {
  const LayoutEntry* entry = nullptr;  // of any site; gives kind, dtype and shape
  uint64_t name_hash = 0;              // xxh3_64 of the fqn
  // Each rank whose layout has it writes its own copy, so there are no holders to choose from.
  bool per_rank = false;
  bool whole_writer = false;  // one rank writes the whole value: an object, or a tensor without elements
  std::vector<Instance> instances;  // ascending by canonical hash
  uint32_t chosen = 0;              // index of the instance that the canonical pieces come from
  uint32_t choices = 1;             // number of instances among which the hash chose
  const Instance& instance() const { return instances[chosen]; }
};

// The distinct non-empty boxes of a value with explicit boxes, ascending, each with the ranks that hold it.
struct BoxHoldings {
  struct HeldBox {
    const Box* box = nullptr;
    uint32_t first = 0, count = 0;  // into ranks
    bool replicated = false;        // every holder declares it
  };
  std::vector<HeldBox> boxes;
  std::vector<Rank> ranks;         // ascending for each box
  std::vector<Rank> listed_ranks;  // all ranks that list a box, even an empty one; ascending
  std::span<const Rank> holders(const HeldBox& held) const {
    return std::span(ranks).subspan(held.first, held.count);
  }
  const HeldBox* find(const Box& box) const;
};

// Computes facts on request and caches them. Not thread-safe. The world must outlive this object and pass
// validate_world.
class Holdings {
 public:
  Holdings(const World& world, FqnIndex index);

  const World& world() const { return world_; }
  const FqnIndex& index() const { return index_; }
  const ValueHoldings& value(uint32_t number);
  const BoxHoldings& boxes(uint32_t number);  // precondition: a value with explicit boxes

  // The ranks of the instance's mesh whose layout has the entry. In a mesh of devices each rank appears once.
  const RankSet& holders(const Instance& instance);
  // The holders that share `coordinate` on all mesh dimensions that do not replicate.
  RankSet replicas(const Instance& instance, std::span<const uint64_t> coordinate);
  // A coordinate whose part of the value has elements but no holder. nullopt: the instance is complete.
  std::optional<Dims> missing_coordinate(const Instance& instance);
  bool is_complete(const Instance& instance);
  // The instance that a rank of `layout` holds; `entry` is that layout's entry.
  const Instance* instance_of(const ValueHoldings& value, const LayoutEntry& entry, uint32_t layout);
  // The rank that writes a value as a whole: chosen by hash, or the lowest holder. nullopt if no rank holds
  // it. Precondition: not per_rank.
  std::optional<Rank> whole_writer(uint32_t number, bool lowest);

 private:
  using MeshKey = std::pair<const Mesh*, uint32_t>;  // second: devices per rank
  struct MeshLess {
    bool operator()(const MeshKey& a, const MeshKey& b) const {
      return a.second != b.second ? a.second < b.second : *a.first < *b.first;
    }
  };
  struct MeshPlaces {
    const Mesh* mesh;
    RankSet ranks;
  };
  ValueHoldings derive_value(uint32_t number);
  Instance make_instance(Site site);
  Hash128 hash_of(const Instance& instance);
  void choose(ValueHoldings& value);
  uint32_t mesh_number(uint32_t layout, uint32_t mesh, uint32_t devices_per_rank);
  uint32_t layouts_number(std::vector<uint32_t> layouts);
  bool has_layout(const Instance& instance, uint32_t layout) const;
  const std::vector<uint64_t>& unheld_cells(const Instance& instance, const std::vector<bool>& sharded);

  const World& world_;
  FqnIndex index_;
  std::vector<std::unique_ptr<ValueHoldings>> values_;
  std::map<uint32_t, BoxHoldings> boxes_;
  std::deque<MeshPlaces> meshes_;  // a deque, so that references stay valid
  std::map<MeshKey, uint32_t, MeshLess> mesh_numbers_;
  std::map<uint32_t, Hash128> mesh_hashes_;                    // by mesh number
  std::vector<std::vector<uint32_t>> mesh_numbers_by_layout_;  // only meshes of ranks
  std::vector<std::vector<uint32_t>> layout_sets_;
  std::map<std::vector<uint32_t>, uint32_t> layout_set_numbers_;
  std::map<std::pair<uint32_t, uint32_t>, RankSet> holders_;
  std::map<std::pair<std::pair<uint32_t, uint32_t>, std::vector<bool>>, std::vector<uint64_t>> unheld_;
};

}  // namespace shoal::plan
