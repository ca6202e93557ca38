#include "plan/saving/plan_classes.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

namespace shoal::plan {

namespace {

constexpr uint64_t kNotInMesh = ~uint64_t{0};

uint64_t digits_of(uint64_t number) {
  uint64_t digits = 1;
  for (; number >= 10; number /= 10) ++digits;
  return digits;
}

Hash128 hash_of(const std::vector<uint64_t>& numbers) {
  return xxh3_128(std::as_bytes(std::span(numbers)));  // compared only within one process
}

// The rank's row-major place in the mesh; kNotInMesh if it is not in it.
uint64_t index_in(const Mesh& mesh, Rank rank) {
  if (mesh.is_affine() && mesh.dims() != 0) {
    uint64_t stride = 1;
    bool is_contiguous = true;
    for (size_t i = mesh.dims(); i-- > 0 && is_contiguous;) {
      is_contiguous = mesh.shape()[i] == 1 || mesh.strides()[i] == stride;
      stride *= mesh.shape()[i];
    }
    if (is_contiguous) {
      return rank >= mesh.base() && rank - mesh.base() < mesh.size() ? rank - mesh.base() : kNotInMesh;
    }
  }
  const std::optional<Dims> coordinate = mesh.coordinate_of(rank);
  if (!coordinate) return kNotInMesh;
  uint64_t index = 0;
  for (size_t i = 0; i < coordinate->size(); ++i) index = index * mesh.shape()[i] + (*coordinate)[i];
  return index;
}

void coordinate_at(const Mesh& mesh, uint64_t index, Dims& coordinate) {
  coordinate.resize(mesh.dims());
  for (size_t i = mesh.dims(); i-- > 0;) {
    coordinate[i] = index % mesh.shape()[i];
    index /= mesh.shape()[i];
  }
}

}  // namespace

// What a rank holds of a tensor, by its place in a mesh. The same in every mesh of that shape.
struct PlanClasses::Seen {
  uint64_t sizes = 0, digits = 0, offsets = 0;  // hashes; 0: not computed yet
};

struct PlanClasses::Geometry {
  Dims shape;
  std::optional<std::vector<Placement>> placements;  // nullopt: held whole
  Mesh mesh;
  std::vector<Seen> seen;  // by place

  const Seen& at(uint64_t index) {
    Seen& out = seen[index];
    if (out.sizes != 0) return out;
    std::vector<Box> boxes;
    if (placements) {
      Dims coordinate;
      coordinate_at(mesh, index, coordinate);
      boxes = shards_at(shape, mesh, *placements, coordinate).boxes;
    } else {
      boxes.push_back(whole(shape));
    }
    std::vector<uint64_t> sizes{1}, digits{1}, offsets{1};
    for (const Box& box : boxes) {
      sizes.insert(sizes.end(), box.sizes.begin(), box.sizes.end());
      offsets.insert(offsets.end(), box.offsets.begin(), box.offsets.end());
      for (uint64_t offset : box.offsets) digits.push_back(digits_of(offset));
    }
    auto hash = [](const std::vector<uint64_t>& numbers) {
      return xxh3_64(std::as_bytes(std::span(numbers))) | 1;
    };
    return out = {hash(sizes), hash(digits), hash(offsets)};
  }
};

class PlanClasses::Geometries {
 public:
  Geometry& at(uint32_t number) { return *geometries_[number]; }
  uint32_t number_of(const LayoutEntry& entry, const Mesh& mesh) {
    const auto* sharding = std::get_if<MeshSharding>(&entry.sharding);
    for (uint32_t i = 0; i < geometries_.size(); ++i) {
      const Geometry& each = *geometries_[i];
      if (each.shape != entry.shape || each.mesh.shape() != mesh.shape()) continue;
      if ((sharding != nullptr) != each.placements.has_value()) continue;
      if (sharding == nullptr || sharding->placements == *each.placements) return i;
    }
    geometries_.push_back(std::make_unique<Geometry>(Geometry{entry.shape, std::nullopt, mesh, {}}));
    if (sharding != nullptr) geometries_.back()->placements = sharding->placements;
    geometries_.back()->seen.resize(mesh.size());
    return static_cast<uint32_t>(geometries_.size() - 1);
  }

 private:
  std::vector<std::unique_ptr<Geometry>> geometries_;
};

std::shared_ptr<PlanClasses::Geometries> PlanClasses::make_geometries() {
  return std::make_shared<Geometries>();
}

// Replica groups with the same derivation: one mesh, one set of layouts, the same sharded dimensions.
struct PlanClasses::Group {
  Instance instance;
  std::vector<bool> sharded;
  bool is_single = false;            // each rank is alone in its group
  std::vector<uint32_t> geometries;  // of the entries; indices in OfLayout::geometries
  struct Cell {
    RankSet ranks;
    // Ascending by rank: its position in the order in which members get units.
    std::vector<std::pair<Rank, uint32_t>> turns;
  };
  std::unordered_map<uint64_t, Cell> cells;
};

// Scratch memory for the rank that is being placed. It is kept, because a million ranks may be placed in
// turn.
struct PlanClasses::Scratch {
  std::vector<uint64_t> plan, text;  // the inputs of its class and of its text
  std::vector<uint64_t> places;      // its place in each mesh
  std::vector<Seen> seen;            // by geometry
  std::vector<Group::Cell*> cells;   // by group
  std::vector<uint64_t> within;
  Dims coordinate;
};

struct PlanClasses::Units {
  uint64_t count = 0;
  bool is_cut = false;  // some box is cut into several units
};

struct PlanClasses::OfLayout {
  explicit OfLayout(SaveRule made) : rule(std::move(made)) {}
  SaveRule rule;
  bool is_alone = false;                   // each rank has a class to itself
  bool has_rank_names = false;             // has per-rank values, whose names contain the rank's number
  std::vector<uint32_t> geometries;        // distinct
  std::vector<const Mesh*> meshes;         // distinct; those that geometries and groups refer to
  std::vector<uint32_t> mesh_of_geometry;  // parallel to geometries; indices in meshes
  std::vector<const LayoutEntry*> entry_of_geometry;  // parallel to geometries; entries of this layout
  std::vector<int32_t> geometry_of_entry;             // indices in geometries; -1: nothing of it moves
  std::vector<Group> groups;
  std::map<Rank, std::vector<uint32_t>> whole_writers;  // the values that each rank writes whole
  std::vector<const Mesh*> held_whole;                  // meshes of such values
  std::unordered_map<Hash128, Units> units;             // of a bucket, by its contents

  uint32_t mesh_number(const Mesh* mesh) {
    for (uint32_t i = 0; i < meshes.size(); ++i) {
      if (*meshes[i] == *mesh) return i;
    }
    meshes.push_back(mesh);
    return static_cast<uint32_t>(meshes.size() - 1);
  }
};

PlanClasses::PlanClasses(const World& world, const SaveOptions& options,
                         std::shared_ptr<Geometries> geometries)
    : world_(world),
      options_(options),
      layouts_(world_.layouts.size()),
      geometries_(std::move(geometries)),
      scratch_(std::make_unique<Scratch>()) {}

PlanClasses::~PlanClasses() = default;

PlanClasses::OfLayout& PlanClasses::of_layout(uint32_t layout) {
  if (!layouts_[layout]) {
    layouts_[layout] =
        std::make_unique<OfLayout>(SaveRule(world_, options_, FqnIndex::of_layout(world_, layout)));
    OfLayout& of = *layouts_[layout];
    of.geometry_of_entry.assign(world_.layouts[layout]->entries().size(), -1);
    for (uint32_t entry = 0; entry < of.geometry_of_entry.size(); ++entry) {
      add_entry(of, layout, entry);
    }
  }
  return *layouts_[layout];
}

bool PlanClasses::is_alone(const LayoutEntry& entry) {
  return std::holds_alternative<BoxSharding>(entry.sharding) || devices_per_rank(entry) > 1;
}

void PlanClasses::add_entry(OfLayout& of, uint32_t layout_number, uint32_t number) {
  Holdings& holdings = of.rule.holdings();
  const ValueHoldings& held =
      holdings.value(number);  // numbers in an index of one layout are positions of its entries
  const Layout& layout = *world_.layouts[layout_number];
  const LayoutEntry& entry = layout.entries()[number];
  if (is_per_rank(entry)) {
    of.has_rank_names = true;
    return;
  }
  if (is_alone(entry)) {
    of.is_alone = true;
    return;
  }
  const Mesh& mesh = layout.meshes()[*mesh_of(entry)];
  const bool is_group = std::holds_alternative<GroupSharding>(entry.sharding);
  if (held.whole_writer || (is_group && !entry.replicated)) {
    if (auto writer = of.rule.whole_writer(number)) of.whole_writers[*writer].push_back(number);
    if (held.whole_writer) {
      if (std::find(of.held_whole.begin(), of.held_whole.end(), &mesh) == of.held_whole.end()) {
        of.held_whole.push_back(&mesh);
      }
      return;
    }
  }
  const uint32_t geometry = geometries_->number_of(entry, mesh);
  auto known = std::find(of.geometries.begin(), of.geometries.end(), geometry);
  // Two meshes of one shape have the same geometry, but different ranks at its places.
  const uint32_t mesh_number = of.mesh_number(&mesh);
  while (known != of.geometries.end() &&
         of.mesh_of_geometry[static_cast<size_t>(known - of.geometries.begin())] != mesh_number) {
    known = std::find(std::next(known), of.geometries.end(), geometry);
  }
  const auto index = static_cast<uint32_t>(known - of.geometries.begin());
  if (known == of.geometries.end()) {
    of.geometries.push_back(geometry);
    of.mesh_of_geometry.push_back(mesh_number);
    of.entry_of_geometry.push_back(&entry);
  }
  of.geometry_of_entry[number] = static_cast<int32_t>(index);

  const Instance& instance = *holdings.instance_of(held, entry, layout_number);
  const std::vector<bool> sharded = sharded_dims(instance);
  for (Group& group : of.groups) {
    if (group.instance.mesh_number != instance.mesh_number ||
        group.instance.layouts_number != instance.layouts_number || group.sharded != sharded) {
      continue;
    }
    if (std::find(group.geometries.begin(), group.geometries.end(), index) == group.geometries.end()) {
      group.geometries.push_back(index);
    }
    return;
  }
  Group group;
  group.instance = instance;
  group.sharded = sharded;
  group.is_single = true;
  for (size_t i = 0; i < sharded.size(); ++i) {
    group.is_single = group.is_single && (sharded[i] || instance.mesh->shape()[i] == 1);
  }
  group.geometries = {index};
  of.groups.push_back(std::move(group));
}

// The units of the boxes that this group divides, computed from the holdings of this rank.
PlanClasses::Units PlanClasses::units_of(OfLayout& of, Rank rank, const RankSet& group, Hash128 sizes) {
  auto [found, is_new] = of.units.try_emplace(sizes);
  if (!is_new) return found->second;
  SaveRule::Gathered gathered = of.rule.gather(rank);
  auto bucket = gathered.buckets.find(group);
  if (bucket == gathered.buckets.end()) return {};
  std::vector<SharedBox> boxes;
  for (const Bucket::HeldBox& held : bucket->second.boxes) {
    boxes.push_back({&held.box, held.element_bytes});
    found->second.is_cut =
        found->second.is_cut || held.box.elements() * held.element_bytes > options_.unit_bytes;
  }
  found->second.count = count_units(boxes, options_.unit_bytes);
  return found->second;
}

// Appends the rank's part of its replica groups' boxes to the inputs of its class. If boxes are cut, appends
// their offsets to the inputs of its text, because the pieces then begin elsewhere.
void PlanClasses::place_in_groups(OfLayout& of, Rank rank) {
  auto& [out, text, places, seen, cells, within, coordinate] = *scratch_;
  cells.assign(of.groups.size(), nullptr);
  for (size_t g = 0; g < of.groups.size(); ++g) {
    Group& group = of.groups[g];
    const uint64_t index = index_in(*group.instance.mesh, rank);
    if (group.is_single || index == kNotInMesh) continue;
    coordinate_at(*group.instance.mesh, index, coordinate);
    const uint64_t cell = cell_of(group.instance, group.sharded, coordinate);
    auto [found, is_new] = group.cells.try_emplace(cell);
    cells[g] = &found->second;
    if (!is_new) continue;
    found->second.ranks = of.rule.holdings().replicas(group.instance, coordinate);
    const RankSet& ranks = found->second.ranks;
    const std::vector<Rank> members = first_members(ranks, world_.roster, ranks.size());
    for (uint32_t turn = 0; turn < members.size(); ++turn)
      found->second.turns.emplace_back(members[turn], turn);
    std::sort(found->second.turns.begin(), found->second.turns.end());
  }
  for (size_t g = 0; g < of.groups.size(); ++g) {
    if (cells[g] == nullptr) {
      out.push_back(of.groups[g].is_single ? 1 : 0);
      continue;
    }
    const Group::Cell& cell = *cells[g];
    size_t first = 0;  // groups with the same ranks divide their boxes together
    while (cells[first] == nullptr || cells[first]->ranks != cell.ranks) ++first;
    out.push_back(cell.ranks.size());
    out.push_back(first);
    out.push_back(cell.ranks.lowest() == rank ? 1 : 0);
    if (options_.dedupe != Dedupe::balanced || cell.ranks.size() == 1) continue;
    within.clear();
    for (size_t other = 0; other < of.groups.size(); ++other) {
      if (cells[other] == nullptr || cells[other]->ranks != cell.ranks) continue;
      within.push_back(other);
      for (uint32_t geometry : of.groups[other].geometries) within.push_back(seen[geometry].sizes);
    }
    auto turn = std::lower_bound(cell.turns.begin(), cell.turns.end(), std::pair(rank, 0u));
    SHOAL_CHECK(turn != cell.turns.end() && turn->first == rank);
    const Units units = units_of(of, rank, cell.ranks, hash_of(within));
    out.push_back(std::min<uint64_t>(turn->second, units.count));  // members after the last unit get nothing
    if (!units.is_cut) continue;
    for (size_t other = 0; other < of.groups.size(); ++other) {
      if (cells[other] == nullptr || cells[other]->ranks != cell.ranks) continue;
      for (uint32_t geometry : of.groups[other].geometries) text.push_back(seen[geometry].offsets);
    }
  }
}

PlanClasses::Place PlanClasses::place_of(Rank rank) {
  const uint32_t layout = world_.roster.layout_of(rank);
  OfLayout& of = of_layout(layout);
  auto& [plan, text, places, seen, cells, within, coordinate] = *scratch_;
  plan.assign({layout});
  text.clear();
  if (of.is_alone) {
    plan.push_back(rank);
    return {hash_of(plan), hash_of(plan)};
  }
  places.clear();
  for (const Mesh* mesh : of.meshes) places.push_back(index_in(*mesh, rank));
  seen.clear();
  for (size_t i = 0; i < of.geometries.size(); ++i) {
    const uint64_t place = places[of.mesh_of_geometry[i]];
    seen.push_back(place == kNotInMesh ? Seen{} : geometries_->at(of.geometries[i]).at(place));
    plan.push_back(seen.back().sizes);
    text.push_back(seen.back().digits);
  }
  place_in_groups(of, rank);
  if (auto writes = of.whole_writers.find(rank); writes != of.whole_writers.end()) {
    plan.insert(plan.end(), writes->second.begin(), writes->second.end());
  }
  plan.push_back(kNotInMesh);
  if (options_.dedupe == Dedupe::none) {
    for (const Mesh* mesh : of.held_whole) plan.push_back(mesh->contains(rank) ? 1 : 0);
  }
  if (of.has_rank_names) plan.push_back(digits_of(rank));
  text.insert(text.end(), plan.begin(), plan.end());
  return {hash_of(plan), hash_of(text)};
}

std::vector<WriteItem> PlanClasses::moved(const SavePlan& plan, Rank rank) {
  OfLayout& of = of_layout(world_.roster.layout_of(rank));
  std::vector<WriteItem> items(plan.items.begin(), plan.items.end());
  if (rank == plan.rank || of.is_alone) return items;
  struct Boxes {
    bool are_known = false;
    std::vector<Box> here, there;
  };
  std::vector<Boxes> of_geometry(of.geometries.size());
  for (WriteItem& item : items) {
    const int32_t geometry = of.geometry_of_entry[item.entry];
    if (geometry < 0) continue;
    Boxes& boxes = of_geometry[static_cast<size_t>(geometry)];
    if (!std::exchange(boxes.are_known, true)) {
      const LayoutEntry& entry = *of.entry_of_geometry[static_cast<size_t>(geometry)];
      const Layout& layout = world_.layout_of(rank);
      boxes.here = layout.shards_of(entry, plan.rank).boxes;
      boxes.there = layout.shards_of(entry, rank).boxes;
    }
    for (size_t i = 0; i < item.box.dims(); ++i) {
      item.box.offsets[i] += boxes.there[item.local_box].offsets[i] - boxes.here[item.local_box].offsets[i];
    }
  }
  return items;
}

SavePlan PlanClasses::plan_of(Rank rank) {
  return plan_with(of_layout(world_.roster.layout_of(rank)).rule, rank);
}

}  // namespace shoal::plan
