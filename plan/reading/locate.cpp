#include "plan/reading/locate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <unordered_map>

#include "plan/geometry/shard_intervals.h"
#include "plan/saving/save_rule.h"
#include "shoal/metadata.h"

namespace shoal::plan {

namespace {
// Bounds of the caches. A cache that exceeds its bound is dropped and computed again.
constexpr size_t kMaxCachedBoxes = size_t{1} << 21;
constexpr size_t kMaxCachedGroups = size_t{1} << 18;  // between calls
constexpr size_t kMaxCachedPlans = 4096;
constexpr uint64_t kMaxCopiesLookedAt = 64;  // ranks checked for copies of a piece on other hosts
}  // namespace

struct Locator::Impl {
  // A replica group by its position: the cell of a mesh that shares all sharded coordinates.
  struct CellKey {
    uint32_t mesh_number, layouts_number;
    uint32_t sharded_dims;  // one bit per mesh dimension
    uint64_t cell;          // row-major over these dimensions
    friend bool operator==(const CellKey&, const CellKey&) = default;
  };
  struct CellHash {
    size_t operator()(const CellKey& key) const noexcept {
      constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
      uint64_t hash = (uint64_t{key.mesh_number} << 32 | key.layouts_number) * kOdd;
      hash = (hash ^ hash >> 32 ^ key.sharded_dims) * kOdd;
      return (hash ^ hash >> 32 ^ key.cell) * kOdd >> 8;
    }
  };
  static_assert(kMaxDims <= 32, "sharded_dims has a bit for each mesh dimension");

  std::shared_ptr<const World> world;
  SaveRule rule;
  struct Group {
    RankSet ranks;
    const Bucket* bucket = nullptr;
    uint64_t bucket_round = 0;  // the bucket is valid if this is the current round
  };
  Buckets buckets;
  size_t cached_boxes = 0;
  uint64_t round = 1;
  std::unordered_map<CellKey, Group, CellHash> groups;  // never iterated
  std::map<Rank, SavePlanPtr> plans;

  // One rank's part of a value: all its pieces, in order, which gives their files.
  struct Stored {
    Rank rank;
    Box box;
    bool canonical = true;
  };

  Impl(std::shared_ptr<const World> given, const SaveOptions& options)
      : world(std::move(given)), rule(*world, options, FqnIndex::of_world(*world)) {}

  // The value of a name, and the rank if it is a per-rank value.
  struct Named {
    uint32_t value = 0;
    std::optional<Rank> rank;
  };

  Holdings& holdings() { return rule.holdings(); }
  std::optional<Named> find(std::string_view fqn);
  const Bucket& bucket_of(const RankSet& group);
  const Bucket& bucket_of(Group& group);
  Group& group_at(const Instance& instance, const Dims& coordinate);
  bool divides(const Group& group) const {
    return rule.options().dedupe == Dedupe::balanced && group.ranks.size() > 1;
  }
  void add_group_pieces(uint32_t value, Group& group, const std::vector<Box>& boxes, const Box& target,
                        std::vector<StoredPiece>& out);
  void add_mesh_pieces(uint32_t value, const Box& target, std::vector<StoredPiece>& out);
  void add_tile_pieces(uint32_t value, const Box& target, std::vector<StoredPiece>& out);
  std::vector<Stored> tile_pieces_of(uint32_t value, Rank rank);
  void add_box_pieces(uint32_t value, const Box& target, std::vector<StoredPiece>& out);
  std::vector<Stored> box_pieces_of(uint32_t value, Rank rank);
  std::vector<Rank> box_writers(uint32_t value, const BoxHoldings& all, const BoxHoldings::HeldBox& held);
  RankSet equal_holders(uint32_t value, const Box& box);
  std::vector<Rank> some_others(const RankSet& ranks, Rank rank, size_t most);
};

namespace {

// Numbers the pieces of one value, given in any order, rank by rank in box order, which gives their files.
// Keeps the canonical ones that overlap the target.
template <class Stored>
void number_pieces(std::vector<Stored> stored, const Box& target, std::vector<StoredPiece>& out) {
  std::sort(stored.begin(), stored.end(), [](const Stored& a, const Stored& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.box < b.box;
  });
  uint32_t file = 0;
  for (size_t i = 0; i < stored.size(); ++i) {
    const bool same_rank = i > 0 && stored[i].rank == stored[i - 1].rank;
    file = same_rank ? std::min(file + 1, kMaxFilesPerRank - 1) : 0;
    if (!stored[i].canonical || !intersect(stored[i].box, target)) continue;
    out.push_back({stored[i].rank, file, stored[i].box});
  }
}

// The assignments of a value's boxes, or of one box if it is given.
std::span<const Assignment> assignments_in(const Bucket& bucket, uint32_t value, const Box* box = nullptr) {
  auto order = [&](const Assignment& assignment) {
    const Bucket::HeldBox& held = bucket.boxes[assignment.box];
    if (held.value != value) return held.value < value ? -1 : 1;
    if (!box || held.box == *box) return 0;
    return held.box < *box ? -1 : 1;
  };
  auto begin = bucket.assignments.begin(), end = bucket.assignments.end();
  auto first =
      std::partition_point(begin, end, [&](const Assignment& assignment) { return order(assignment) < 0; });
  auto last =
      std::partition_point(first, end, [&](const Assignment& assignment) { return order(assignment) == 0; });
  return std::span(bucket.assignments)
      .subspan(static_cast<size_t>(first - begin), static_cast<size_t>(last - first));
}

// One choice of coordinates on the mesh dimensions that shard one tensor dimension, and the intervals it
// holds.
struct Branch {
  std::vector<uint64_t> coordinates;
  Intervals held;
};

// All choices for tensor dimension `dim` whose intervals overlap `range`.
std::vector<Branch> branches_of(const Instance& instance, std::span<const Placement> placements, size_t dim,
                                Interval range) {
  std::vector<Branch> branches{{{}, whole_interval(instance.entry->shape[dim])}};
  for (size_t i = 0; i < placements.size(); ++i) {
    const Placement& placement = placements[i];
    if (placement.kind == Placement::Kind::replicate || placement.dim != dim) continue;
    const uint64_t count = instance.mesh->shape()[i];
    std::vector<Branch> next;
    for (const Branch& branch : branches) {
      for (uint64_t coordinate : shards_meeting(branch.held, placement, count, range)) {
        next.push_back({branch.coordinates, shard_of(branch.held, placement, count, coordinate)});
        next.back().coordinates.push_back(coordinate);
      }
    }
    branches = std::move(next);
  }
  return branches;
}

// Calls visit(coordinate, boxes) for every coordinate of the sharded mesh dimensions whose shard overlaps the
// target.
template <class Visit>
void for_each_shard(const Instance& instance, const Box& target, Visit&& visit) {
  const std::span<const Placement> placements = placements_of(instance);
  const size_t dims = instance.entry->shape.size();
  std::vector<std::vector<Branch>> by_dim;
  for (size_t d = 0; d < dims; ++d) {
    by_dim.push_back(
        branches_of(instance, placements, d, {target.offsets[d], target.offsets[d] + target.sizes[d]}));
    if (by_dim.back().empty()) return;
  }
  std::vector<size_t> choice(dims, 0);
  Dims coordinate(instance.mesh->dims(), 0);
  std::vector<Intervals> held(dims);
  while (true) {
    std::vector<size_t> used(dims, 0);
    for (size_t d = 0; d < dims; ++d) held[d] = by_dim[d][choice[d]].held;
    for (size_t i = 0; i < placements.size(); ++i) {
      if (placements[i].kind == Placement::Kind::replicate) continue;
      const size_t d = placements[i].dim;
      coordinate[i] = by_dim[d][choice[d]].coordinates[used[d]++];
    }
    visit(coordinate, boxes_of(held));
    size_t d = dims;
    while (d-- > 0) {
      if (++choice[d] < by_dim[d].size()) break;
      choice[d] = 0;
    }
    if (d == size_t(-1)) return;
  }
}

}  // namespace

std::optional<Locator::Impl::Named> Locator::Impl::find(std::string_view fqn) {
  std::optional<uint32_t> number = holdings().index().find(fqn);
  if (number && !holdings().value(*number).per_rank) return Named{*number, std::nullopt};
  std::optional<RankFqn> name = split_rank_fqn(fqn);
  if (!name || name->rank >= world->roster.world_size()) return std::nullopt;
  number = holdings().index().find(name->prefix);
  if (!number || !holdings().value(*number).per_rank) return std::nullopt;
  if (!world->layout_of(name->rank).find(name->prefix)) return std::nullopt;
  return Named{*number, name->rank};
}

// The divided bucket of a group of at least two ranks. Every member holds all of it, so it can be gathered
// from any member.
const Bucket& Locator::Impl::bucket_of(const RankSet& group) {
  auto found = buckets.find(group);
  if (found == buckets.end()) {
    if (cached_boxes > kMaxCachedBoxes) {
      buckets.clear();
      cached_boxes = 0;
      ++round;
    }
    SaveRule::Gathered gathered = rule.gather(group.lowest());
    for (auto& [ranks, bucket] : gathered.buckets) {
      const size_t boxes = bucket.boxes.size();
      if (buckets.emplace(ranks, std::move(bucket)).second) cached_boxes += boxes;
    }
    found = buckets.find(group);
    SHOAL_CHECK(found != buckets.end());
  }
  if (!found->second.divided) rule.divide_bucket(group, found->second);
  return found->second;
}

const Bucket& Locator::Impl::bucket_of(Group& group) {
  if (group.bucket_round != round) {
    group.bucket = &bucket_of(group.ranks);
    group.bucket_round = round;
  }
  return *group.bucket;
}

// The replica group at a coordinate; only the sharded mesh dimensions matter.
Locator::Impl::Group& Locator::Impl::group_at(const Instance& instance, const Dims& coordinate) {
  CellKey key{instance.mesh_number, instance.layouts_number, 0, 0};
  const std::span<const Placement> placements = placements_of(instance);
  for (size_t i = 0; i < placements.size(); ++i) {
    if (placements[i].kind == Placement::Kind::replicate) continue;
    key.sharded_dims |= uint32_t{1} << i;
    key.cell = key.cell * instance.mesh->shape()[i] + coordinate[i];
  }
  auto [found, is_new] = groups.try_emplace(key);
  if (is_new) found->second.ranks = holdings().replicas(instance, coordinate);
  return found->second;
}

// Pieces of a value of which every member of `group` holds `boxes`.
void Locator::Impl::add_group_pieces(uint32_t value, Group& group, const std::vector<Box>& boxes,
                                     const Box& target, std::vector<StoredPiece>& out) {
  if (group.ranks.empty()) return;
  std::vector<Stored> stored;
  if (!divides(group)) {
    for (const Box& box : boxes) stored.push_back({group.ranks.lowest(), box});
    return number_pieces(std::move(stored), target, out);
  }
  const Bucket& bucket = bucket_of(group);
  for (const Assignment& assignment : assignments_in(bucket, value)) {
    for (Box& box : boxes_of_range(bucket.boxes[assignment.box].box, assignment.begin, assignment.end)) {
      stored.push_back({bucket.members[assignment.member], std::move(box)});
    }
  }
  number_pieces(std::move(stored), target, out);
}

void Locator::Impl::add_mesh_pieces(uint32_t value, const Box& target, std::vector<StoredPiece>& out) {
  const ValueHoldings& held = holdings().value(value);
  const Instance& instance = held.instance();
  if (instance.devices_per_rank > 1) return add_tile_pieces(value, target, out);
  if (std::holds_alternative<MeshSharding>(instance.entry->sharding)) {
    for_each_shard(instance, target, [&](const Dims& coordinate, const std::vector<Box>& boxes) {
      add_group_pieces(value, group_at(instance, coordinate), boxes, target, out);
    });
    return;
  }
  if (!instance.entry->replicated && rule.options().dedupe == Dedupe::balanced) {
    std::optional<Rank> writer = rule.whole_writer(value);
    if (writer) out.push_back({*writer, 0, whole(held.entry->shape)});
    return;
  }
  Group& group = group_at(instance, Dims(instance.mesh->dims(), 0));
  add_group_pieces(value, group, {whole(held.entry->shape)}, target, out);
}

// Everything that `rank` writes of a value on devices, whose tiles may have different replica groups.
std::vector<Locator::Impl::Stored> Locator::Impl::tile_pieces_of(uint32_t value, Rank rank) {
  const Instance& instance = holdings().value(value).instance();
  std::vector<Stored> stored;
  for (const HeldPart& part : parts_of(*instance.entry, *instance.mesh, rank)) {
    Group& group = group_at(instance, part.coordinate);
    const Box& tile = part.boxes[0];
    if (!divides(group)) {
      const bool is_lowest = group.ranks.lowest() == rank;
      if (is_lowest || rule.options().dedupe == Dedupe::none) stored.push_back({rank, tile, is_lowest});
      continue;
    }
    const Bucket& bucket = bucket_of(group);
    for (const Assignment& assignment : assignments_in(bucket, value, &tile)) {
      if (bucket.members[assignment.member] != rank) continue;
      for (Box& piece : boxes_of_range(tile, assignment.begin, assignment.end))
        stored.push_back({rank, std::move(piece)});
    }
  }
  return stored;
}

void Locator::Impl::add_tile_pieces(uint32_t value, const Box& target, std::vector<StoredPiece>& out) {
  const Instance& instance = holdings().value(value).instance();
  std::vector<Rank> writers;
  for_each_shard(instance, target, [&](const Dims& coordinate, const std::vector<Box>& tile) {
    Group& group = group_at(instance, coordinate);
    if (group.ranks.empty()) return;
    if (!divides(group)) return writers.push_back(group.ranks.lowest());
    const Bucket& bucket = bucket_of(group);
    for (const Assignment& assignment : assignments_in(bucket, value, &tile.at(0))) {
      writers.push_back(bucket.members[assignment.member]);
    }
  });
  std::sort(writers.begin(), writers.end());
  writers.erase(std::unique(writers.begin(), writers.end()), writers.end());
  for (Rank rank : writers) number_pieces(tile_pieces_of(value, rank), target, out);
}

std::vector<Rank> Locator::Impl::box_writers(uint32_t value, const BoxHoldings& all,
                                             const BoxHoldings::HeldBox& held) {
  if (!rule.divides(held)) return {rule.box_writer(holdings().value(value), all, held)};
  std::span<const Rank> holders = all.holders(held);
  const Bucket& bucket = bucket_of(RankSet::from_ascending({holders.begin(), holders.end()}));
  std::vector<Rank> writers;
  for (const Assignment& assignment : assignments_in(bucket, value, held.box))
    writers.push_back(bucket.members[assignment.member]);
  return writers;
}

// Everything that `rank` writes of a value with explicit boxes.
std::vector<Locator::Impl::Stored> Locator::Impl::box_pieces_of(uint32_t value, Rank rank) {
  const BoxHoldings& all = holdings().boxes(value);
  const Layout& layout = world->layout_of(rank);
  const LayoutEntry& entry = layout.entries()[layout.find(holdings().index().fqn(value)).value()];
  std::vector<Stored> stored;
  for (const Box& box : layout.shards_of(entry, rank).boxes) {
    if (box.empty()) continue;
    const BoxHoldings::HeldBox& held = *all.find(box);
    if (rule.divides(held)) {
      std::span<const Rank> holders = all.holders(held);
      const Bucket& bucket = bucket_of(RankSet::from_ascending({holders.begin(), holders.end()}));
      for (const Assignment& assignment : assignments_in(bucket, value, &box)) {
        if (bucket.members[assignment.member] != rank) continue;
        for (Box& piece : boxes_of_range(box, assignment.begin, assignment.end))
          stored.push_back({rank, std::move(piece)});
      }
      continue;
    }
    const bool is_writer = rule.box_writer(holdings().value(value), all, held) == rank;
    if (is_writer || rule.options().dedupe == Dedupe::none) stored.push_back({rank, box, is_writer});
  }
  return stored;
}

void Locator::Impl::add_box_pieces(uint32_t value, const Box& target, std::vector<StoredPiece>& out) {
  const BoxHoldings& all = holdings().boxes(value);
  std::vector<Rank> writers;
  for (const BoxHoldings::HeldBox& held : all.boxes) {
    if (!intersect(*held.box, target)) continue;
    for (Rank rank : box_writers(value, all, held)) writers.push_back(rank);
  }
  std::sort(writers.begin(), writers.end());
  writers.erase(std::unique(writers.begin(), writers.end()), writers.end());
  for (Rank rank : writers) number_pieces(box_pieces_of(value, rank), target, out);
}

// The ranks that provably hold the same bytes of a box that is stored whole, because dedupe is none.
RankSet Locator::Impl::equal_holders(uint32_t value, const Box& box) {
  const ValueHoldings& held = holdings().value(value);
  const Instance& instance = held.instance();
  if (!instance.mesh) {
    const BoxHoldings& all = holdings().boxes(value);
    const BoxHoldings::HeldBox* found = all.find(box);
    if (!found || !found->replicated) return {};
    std::span<const Rank> ranks = all.holders(*found);
    return RankSet::from_ascending({ranks.begin(), ranks.end()});
  }
  if (std::holds_alternative<GroupSharding>(instance.entry->sharding)) {
    return instance.entry->replicated ? holdings().holders(instance) : RankSet();
  }
  RankSet ranks;
  for_each_shard(instance, box, [&](const Dims& coordinate, const std::vector<Box>& boxes) {
    if (std::find(boxes.begin(), boxes.end(), box) != boxes.end())
      ranks = group_at(instance, coordinate).ranks;
  });
  return ranks;
}

std::vector<Rank> Locator::Impl::some_others(const RankSet& ranks, Rank rank, size_t most) {
  std::vector<Rank> elsewhere, same_host;
  const uint64_t size = ranks.size(), first = ranks.count_below(uint64_t{rank} + 1);
  for (uint64_t i = 0; i < std::min(size, kMaxCopiesLookedAt) && elsewhere.size() < most; ++i) {
    const Rank other = ranks.nth((first + i) % size);
    if (other == rank) continue;
    const bool is_elsewhere = world->roster.host_of(other) != world->roster.host_of(rank);
    (is_elsewhere ? elsewhere : same_host).push_back(other);
  }
  elsewhere.insert(elsewhere.end(), same_host.begin(), same_host.end());
  if (elsewhere.size() > most) elsewhere.resize(most);
  return elsewhere;
}

Locator::Locator(std::shared_ptr<const World> world, SaveOptions options)
    : impl_(std::make_unique<Impl>(std::move(world), options)) {}

Locator::~Locator() = default;

Result<Locator::Value> Locator::value(std::string_view fqn) const {
  std::optional<Impl::Named> named = impl_->find(fqn);
  if (!named) return Status(Code::not_found, fmt::format("'{}' is not in the checkpoint", fqn));
  const LayoutEntry& entry = *impl_->holdings().value(named->value).entry;
  return Value{entry.kind, entry.dtype, entry.shape};
}

Result<std::vector<StoredPiece>> Locator::pieces(std::string_view fqn, const Box& target) {
  std::optional<Impl::Named> named = impl_->find(fqn);
  if (!named) return Status(Code::not_found, fmt::format("'{}' is not in the checkpoint", fqn));
  if (named->rank) return std::vector<StoredPiece>{{*named->rank, 0, Box{}}};
  const uint32_t number = named->value;
  const ValueHoldings& held = impl_->holdings().value(number);
  std::vector<StoredPiece> out;
  if (held.whole_writer) {
    const bool is_object = held.entry->kind == LayoutEntry::Kind::object;
    std::optional<Rank> writer = impl_->rule.whole_writer(number);
    if (writer) out.push_back({*writer, 0, is_object ? Box{} : whole(held.entry->shape)});
    return out;
  }
  if (Status status = validate_box(target, held.entry->shape); !status.ok()) {
    return status.with_context(fmt::format("'{}'", fqn));
  }
  if (target.empty()) return out;
  if (impl_->groups.size() > kMaxCachedGroups) impl_->groups.clear();
  if (held.instance().mesh) {
    impl_->add_mesh_pieces(number, target, out);
  } else {
    impl_->add_box_pieces(number, target, out);
  }
  std::sort(out.begin(), out.end(), [](const StoredPiece& a, const StoredPiece& b) { return a.box < b.box; });
  return out;
}

Result<std::vector<StoredPiece>> Locator::copies(std::string_view fqn, const StoredPiece& piece,
                                                 size_t most) {
  std::optional<Impl::Named> named = impl_->find(fqn);
  if (!named) return Status(Code::not_found, fmt::format("'{}' is not in the checkpoint", fqn));
  std::vector<StoredPiece> out;
  if (impl_->rule.options().dedupe != Dedupe::none || named->rank) return out;
  const Instance& instance = impl_->holdings().value(named->value).instance();
  for (Rank rank : impl_->some_others(impl_->equal_holders(named->value, piece.box), piece.rank, most)) {
    StoredPiece copy{rank, piece.file, piece.box};  // on a mesh of ranks all of them hold the same boxes
    std::optional<std::vector<Impl::Stored>> all;
    if (!instance.mesh) all = impl_->box_pieces_of(named->value, rank);
    if (instance.devices_per_rank > 1) all = impl_->tile_pieces_of(named->value, rank);
    if (all) {
      const size_t before = static_cast<size_t>(std::count_if(
          all->begin(), all->end(), [&](const Impl::Stored& other) { return other.box < piece.box; }));
      copy.file = std::min(static_cast<uint32_t>(before), kMaxFilesPerRank - 1);
    }
    out.push_back(std::move(copy));
  }
  return out;
}

Result<SavePlanPtr> Locator::plan_of(Rank rank) {
  if (rank >= impl_->world->roster.world_size()) {
    return Status(Code::invalid_argument,
                  fmt::format("rank {} is not in a world of {}", rank, impl_->world->roster.world_size()));
  }
  if (auto found = impl_->plans.find(rank); found != impl_->plans.end()) return found->second;
  if (impl_->plans.size() >= kMaxCachedPlans) impl_->plans.clear();
  auto plan = std::make_shared<const SavePlan>(plan_with(impl_->rule, rank));
  impl_->plans.emplace(rank, plan);
  return SavePlanPtr(std::move(plan));
}

}  // namespace shoal::plan
