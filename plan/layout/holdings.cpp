#include "plan/layout/holdings.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "plan/layout/canonical_bytes.h"
#include "shoal/bytes.h"

namespace shoal::plan {

namespace {

constexpr uint32_t kUnset = std::numeric_limits<uint32_t>::max();

bool is_explicit(const LayoutEntry& entry) {
  return std::holds_alternative<BoxSharding>(entry.sharding);
}

// What identical entries share besides fqn, kind, dtype and shape, which validate_world compares.
bool same_sharding(const Instance& a, const Instance& b) {
  if (a.mesh_number != b.mesh_number || a.entry->replicated != b.entry->replicated) return false;
  if (a.entry->sharding.index() != b.entry->sharding.index()) return false;
  return std::ranges::equal(placements_of(a), placements_of(b));
}

// The ranks of a mesh; in a mesh of devices, each rank once.
RankSet ranks_on(const Mesh& mesh, uint32_t devices_per_rank) {
  if (devices_per_rank == 1) return RankSet::of_mesh(mesh);
  std::vector<Rank> ranks = mesh.ascending_ranks();
  for (Rank& rank : ranks) rank /= devices_per_rank;
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return RankSet::from_ascending(std::move(ranks));
}

}  // namespace

Hash128 hash_mesh(const Mesh& mesh) {
  CanonicalBytes bytes;
  bytes.u32(static_cast<uint32_t>(mesh.dims()));
  for (uint64_t size : mesh.shape()) bytes.u64(size);
  bytes.u8(mesh.is_affine() ? 1 : 0);
  if (mesh.is_affine()) {
    bytes.u32(mesh.base());
    for (uint64_t stride : mesh.strides()) bytes.u64(stride);
  }
  for (Rank rank : mesh.listed()) bytes.u32(rank);
  return bytes.hash_128();
}

Hash128 hash_sharding(const LayoutEntry& entry, const Hash128& mesh_hash) {
  CanonicalBytes bytes;
  const auto* mesh = std::get_if<MeshSharding>(&entry.sharding);
  const uint32_t devices = devices_per_rank(entry);
  const bool is_devices = devices > 1;
  bytes.u8(mesh ? 0 : is_devices ? 2 : 1);
  bytes.u8(entry.replicated ? 1 : 0);
  bytes.hash(mesh_hash);
  if (mesh) {
    for (const Placement& placement : mesh->placements) {
      bytes.u8(static_cast<uint8_t>(placement.kind));
      bytes.u32(placement.dim);
      bytes.u64(placement.split_factor);
    }
  }
  if (is_devices) bytes.u32(devices);
  return bytes.hash_128();
}

std::span<const Placement> placements_of(const Instance& instance) {
  return placements_of(*instance.entry, *instance.mesh);
}

std::vector<bool> sharded_dims(const Instance& instance) {
  std::vector<bool> sharded(instance.mesh->dims(), false);
  const std::span<const Placement> placements = placements_of(instance);
  for (size_t i = 0; i < placements.size(); ++i) {
    sharded[i] = placements[i].kind != Placement::Kind::replicate;
  }
  return sharded;
}

uint64_t cell_of(const Instance& instance, const std::vector<bool>& sharded,
                 std::span<const uint64_t> coordinate) {
  uint64_t cell = 0;
  for (size_t i = 0; i < coordinate.size(); ++i) {
    if (sharded[i]) cell = cell * instance.mesh->shape()[i] + coordinate[i];
  }
  return cell;
}

const BoxHoldings::HeldBox* BoxHoldings::find(const Box& box) const {
  auto found = std::lower_bound(boxes.begin(), boxes.end(), box,
                                [](const HeldBox& held, const Box& b) { return *held.box < b; });
  return found == boxes.end() || *found->box != box ? nullptr : &*found;
}

Holdings::Holdings(const World& world, FqnIndex index)
    : world_(world),
      index_(std::move(index)),
      values_(index_.size()),
      mesh_numbers_by_layout_(world.layouts.size()) {}

uint32_t Holdings::mesh_number(uint32_t layout, uint32_t mesh, uint32_t devices_per_rank) {
  const std::vector<Mesh>& meshes = world_.layouts[layout]->meshes();
  auto number = [&] {
    auto [found, is_new] = mesh_numbers_.emplace(MeshKey{&meshes[mesh], devices_per_rank},
                                                 static_cast<uint32_t>(meshes_.size()));
    if (is_new) meshes_.push_back({&meshes[mesh], ranks_on(meshes[mesh], devices_per_rank)});
    return found->second;
  };
  if (devices_per_rank > 1) return number();
  std::vector<uint32_t>& numbers = mesh_numbers_by_layout_[layout];
  if (numbers.empty()) numbers.assign(meshes.size(), kUnset);
  if (numbers[mesh] == kUnset) numbers[mesh] = number();
  return numbers[mesh];
}

uint32_t Holdings::layouts_number(std::vector<uint32_t> layouts) {
  auto [found, is_new] =
      layout_set_numbers_.emplace(std::move(layouts), static_cast<uint32_t>(layout_sets_.size()));
  if (is_new) layout_sets_.push_back(found->first);
  return found->second;
}

bool Holdings::has_layout(const Instance& instance, uint32_t layout) const {
  const std::vector<uint32_t>& layouts = layout_sets_[instance.layouts_number];
  return std::binary_search(layouts.begin(), layouts.end(), layout);
}

Instance Holdings::make_instance(Site site) {
  Instance instance;
  const Layout& layout = *world_.layouts[site.layout];
  instance.entry = &layout.entries()[site.entry];
  if (std::optional<uint32_t> mesh = mesh_of(*instance.entry)) {
    instance.devices_per_rank = devices_per_rank(*instance.entry);
    instance.mesh_number = mesh_number(site.layout, *mesh, instance.devices_per_rank);
    instance.mesh = &layout.meshes()[*mesh];
  }
  return instance;
}

Hash128 Holdings::hash_of(const Instance& instance) {
  auto [mesh_hash, is_new] = mesh_hashes_.try_emplace(instance.mesh_number);
  if (is_new) mesh_hash->second = hash_mesh(*instance.mesh);
  return hash_sharding(*instance.entry, mesh_hash->second);
}

ValueHoldings Holdings::derive_value(uint32_t number) {
  std::span<const Site> sites = index_.sites(number);
  ValueHoldings value;
  value.entry = &world_.layouts[sites[0].layout]->entries()[sites[0].entry];
  value.name_hash = xxh3_64(index_.fqn(number));
  value.per_rank = is_per_rank(*value.entry);
  value.whole_writer =
      value.entry->kind == LayoutEntry::Kind::object || *element_count(value.entry->shape) == 0;
  std::vector<std::vector<uint32_t>> layouts;
  for (const Site& site : sites) {
    Instance instance = make_instance(site);
    size_t i = 0;
    const bool is_one = value.per_rank || is_explicit(*instance.entry);
    while (i < value.instances.size() && !is_one && !same_sharding(value.instances[i], instance)) {
      ++i;
    }
    if (i == value.instances.size()) {
      value.instances.push_back(instance);
      layouts.emplace_back();
    }
    layouts[i].push_back(site.layout);
  }
  for (size_t i = 0; i < layouts.size(); ++i)
    value.instances[i].layouts_number = layouts_number(std::move(layouts[i]));
  if (value.instances.size() > 1) choose(value);
  return value;
}

// Chooses by hash(fqn) among the complete instances. If none is complete, among all; check_coverage then
// rejects the world.
void Holdings::choose(ValueHoldings& value) {
  std::vector<std::pair<Hash128, Instance>> hashed;
  for (const Instance& instance : value.instances) hashed.emplace_back(hash_of(instance), instance);
  std::sort(hashed.begin(), hashed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < hashed.size(); ++i) value.instances[i] = hashed[i].second;
  std::vector<uint32_t> candidates;
  for (uint32_t i = 0; i < value.instances.size(); ++i) {
    if (is_complete(value.instances[i])) candidates.push_back(i);
  }
  if (candidates.empty()) {
    candidates.resize(value.instances.size());
    std::iota(candidates.begin(), candidates.end(), 0u);
  }
  value.choices = static_cast<uint32_t>(candidates.size());
  value.chosen = candidates[value.name_hash % value.choices];
}

const ValueHoldings& Holdings::value(uint32_t number) {
  if (!values_[number]) values_[number] = std::make_unique<ValueHoldings>(derive_value(number));
  return *values_[number];
}

const Instance* Holdings::instance_of(const ValueHoldings& value, const LayoutEntry& entry, uint32_t layout) {
  if (value.instances.size() == 1) return &value.instances[0];
  for (const Instance& instance : value.instances) {
    if (instance.entry == &entry || has_layout(instance, layout)) return &instance;
  }
  return nullptr;
}

const RankSet& Holdings::holders(const Instance& instance) {
  const MeshPlaces& facts = meshes_[instance.mesh_number];
  const std::vector<uint32_t>& layouts = layout_sets_[instance.layouts_number];
  if (layouts.size() == world_.layouts.size()) return facts.ranks;
  auto [found, is_new] = holders_.try_emplace({instance.mesh_number, instance.layouts_number});
  if (!is_new) return found->second;
  const Roster& roster = world_.roster;
  std::vector<std::pair<uint64_t, uint64_t>> ranges;  // positions in facts.ranks
  uint64_t count = 0;
  for (size_t i = 0; i < roster.layout_runs().size(); ++i) {
    const Run& run = roster.layout_runs()[i];
    if (!std::binary_search(layouts.begin(), layouts.end(), run.value)) continue;
    const uint64_t start = roster.layout_starts()[i];
    ranges.emplace_back(facts.ranks.count_below(start), facts.ranks.count_below(start + run.count));
    count += ranges.back().second - ranges.back().first;
  }
  if (count == facts.ranks.size()) return found->second = facts.ranks;
  std::vector<Rank> ranks;
  ranks.reserve(count);
  for (auto [begin, end] : ranges) {
    for (uint64_t i = begin; i < end; ++i) ranks.push_back(facts.ranks.nth(i));
  }
  return found->second = RankSet::from_ascending(std::move(ranks));
}

RankSet Holdings::replicas(const Instance& instance, std::span<const uint64_t> coordinate) {
  std::vector<bool> free = sharded_dims(instance);
  free.flip();
  const RankSet& all = holders(instance);
  RankSet slice = ranks_on(instance.mesh->slice(coordinate, free), instance.devices_per_rank);
  if (all.size() == meshes_[instance.mesh_number].ranks.size()) return slice;
  std::vector<Rank> ranks = slice.ranks();
  std::erase_if(ranks, [&](Rank rank) { return !all.contains(rank); });
  return RankSet::from_ascending(std::move(ranks));
}

// Row-major numbers, over the sharded mesh dimensions, of sharded coordinates that no holder has.
const std::vector<uint64_t>& Holdings::unheld_cells(const Instance& instance,
                                                    const std::vector<bool>& sharded) {
  auto [found, is_new] = unheld_.try_emplace({{instance.mesh_number, instance.layouts_number}, sharded});
  if (!is_new) return found->second;
  const Mesh& mesh = *instance.mesh;
  uint64_t cells = 1;
  for (size_t i = 0; i < mesh.dims(); ++i) cells *= sharded[i] ? mesh.shape()[i] : 1;
  std::vector<bool> held(cells, false);
  const RankSet& ranks = holders(instance);
  if (instance.devices_per_rank == 1) {
    for (Rank rank : ranks.ranks()) held[cell_of(instance, sharded, *mesh.coordinate_of(rank))] = true;
  } else {
    for (Rank device : mesh.ranks()) {
      if (!ranks.contains(device / instance.devices_per_rank)) continue;
      held[cell_of(instance, sharded, *mesh.coordinate_of(device))] = true;
    }
  }
  for (uint64_t cell = 0; cell < cells; ++cell) {
    if (!held[cell]) found->second.push_back(cell);
  }
  return found->second;
}

std::optional<Dims> Holdings::missing_coordinate(const Instance& instance) {
  if (holders(instance).size() == meshes_[instance.mesh_number].ranks.size()) return std::nullopt;
  const std::vector<bool> sharded = sharded_dims(instance);
  const std::span<const Placement> placements = placements_of(instance);
  for (uint64_t cell : unheld_cells(instance, sharded)) {
    Dims coordinate(instance.mesh->dims(), 0);
    for (size_t i = coordinate.size(); i-- > 0;) {
      if (!sharded[i]) continue;
      coordinate[i] = cell % instance.mesh->shape()[i];
      cell /= instance.mesh->shape()[i];
    }
    if (placements.empty()) return coordinate;
    LocalShards shards = shards_at(instance.entry->shape, *instance.mesh, placements, coordinate);
    if (!shards.boxes.empty()) return coordinate;
  }
  return std::nullopt;
}

bool Holdings::is_complete(const Instance& instance) {
  return !holders(instance).empty() && !missing_coordinate(instance);
}

std::optional<Rank> Holdings::whole_writer(uint32_t number, bool lowest) {
  const ValueHoldings& held = value(number);
  SHOAL_CHECK(!held.per_rank);
  if (is_explicit(*held.entry)) {
    const std::vector<Rank>& ranks = boxes(number).listed_ranks;
    if (ranks.empty()) return std::nullopt;
    return ranks[lowest ? 0 : held.name_hash % ranks.size()];
  }
  const RankSet& ranks = holders(held.instance());
  if (ranks.empty()) return std::nullopt;
  return ranks.nth(lowest ? 0 : held.name_hash / held.choices % ranks.size());
}

const BoxHoldings& Holdings::boxes(uint32_t number) {
  auto [found, is_new] = boxes_.try_emplace(number);
  BoxHoldings& out = found->second;
  if (!is_new) return out;
  struct One {
    const Box* box;
    Rank rank;
    bool replicated;
  };
  std::vector<One> all;
  for (const Site& site : index_.sites(number)) {
    const LayoutEntry& entry = world_.layouts[site.layout]->entries()[site.entry];
    for (const RankBoxes& held : std::get<BoxSharding>(entry.sharding).ranks) {
      // Only a rank's own layout states what it holds.
      if (world_.roster.layout_of(held.rank) != site.layout) continue;
      out.listed_ranks.push_back(held.rank);
      for (const Box& box : held.boxes) {
        if (!box.empty()) all.push_back({&box, held.rank, entry.replicated});
      }
    }
  }
  std::sort(out.listed_ranks.begin(), out.listed_ranks.end());
  std::sort(all.begin(), all.end(), [](const One& a, const One& b) {
    auto order = *a.box <=> *b.box;
    return order != 0 ? order < 0 : a.rank < b.rank;
  });
  for (const One& one : all) {
    if (out.boxes.empty() || *out.boxes.back().box != *one.box) {
      out.boxes.push_back({one.box, static_cast<uint32_t>(out.ranks.size()), 0, true});
    }
    out.ranks.push_back(one.rank);
    ++out.boxes.back().count;
    out.boxes.back().replicated = out.boxes.back().replicated && one.replicated;
  }
  return out;
}

}  // namespace shoal::plan
