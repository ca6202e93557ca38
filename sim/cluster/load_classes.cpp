#include "sim/cluster/load_classes.h"

#include <algorithm>
#include <span>
#include <utility>

#include "plan/layout/holdings.h"
#include "shoal/bytes.h"

namespace shoal::sim {

namespace {

constexpr Rank kNotKnown = ~Rank{0};

// Each value has one sharding, so that a rank which loads what it holds reads from those that hold the same.
bool has_one_sharding_each(const World& world) {
  plan::Holdings holdings(world, plan::FqnIndex::of_world(world));
  for (uint32_t value = 0; value < holdings.index().size(); ++value) {
    if (holdings.value(value).instances.size() != 1) return false;
  }
  return true;
}

}  // namespace

LoadClasses::LoadClasses(const CountedRoot& root, std::vector<LayoutPtr> layout_of, uint32_t ranks_per_host)
    : root_(root),
      layout_of_(std::move(layout_of)),
      ranks_per_host_(ranks_per_host),
      like_host_((layout_of_.size() + ranks_per_host - 1) / ranks_per_host, kNotKnown) {
  if (!know_root()) world_ = nullptr;
}

bool LoadClasses::know_root() {
  SaveOptions options;
  for (const AttemptKey& key : root_.committed()) {
    const storage::Manifest& manifest = root_.decision(key)->manifest();
    if (world_ == nullptr) {
      world_ = manifest.world;
      options = manifest.options;
    }
    if (manifest.world->roster.id() != world_->roster.id() || manifest.options != options) return false;
  }
  if (world_ == nullptr || world_->roster.world_size() != layout_of_.size()) return false;
  if (!root_.has_only_roster(world_->roster.id()) || !has_one_sharding_each(*world_)) return false;
  plans_ = std::make_unique<plan::PlanClasses>(*world_, options);
  attempts_ = root_.attempts();
  return true;
}

std::optional<std::vector<LoadClasses::Replicated>> LoadClasses::replicated_by(const Layout& layout) {
  std::vector<Replicated> all;
  for (const LayoutEntry& entry : layout.entries()) {
    const auto* sharding = std::get_if<MeshSharding>(&entry.sharding);
    if (sharding == nullptr || devices_per_rank(entry) != 1) return std::nullopt;
    if (entry.kind != LayoutEntry::Kind::tensor || whole(entry.shape).empty()) return std::nullopt;
    Replicated of{&layout.meshes()[*mesh_of(entry)], {}};
    if (!of.mesh->is_affine()) return std::nullopt;
    for (const Placement& placement : sharding->placements) {
      of.dims.push_back(placement.kind == Placement::Kind::replicate);
    }
    if (std::ranges::find(all, of) == all.end()) all.push_back(std::move(of));
  }
  return all;
}

bool LoadClasses::is_closed(Rank first, Rank end) {
  for (Rank rank = first; rank < end; ++rank) {
    const Layout& layout = world_->layout_of(rank);
    if (layout.id() != layout_of_[rank]->id()) return false;
    auto [meshes, is_new] = replicated_.try_emplace(&layout);
    if (is_new) meshes->second = replicated_by(layout);
    if (!meshes->second) return false;
    for (const auto& [mesh, replicates] : *meshes->second) {
      const std::optional<Dims> coordinate = mesh->coordinate_of(rank);
      if (!coordinate) continue;
      uint64_t lowest = rank, highest = rank;
      for (size_t i = 0; i < replicates.size(); ++i) {
        if (!replicates[i]) continue;
        lowest -= (*coordinate)[i] * mesh->strides()[i];
        highest += (mesh->shape()[i] - 1 - (*coordinate)[i]) * mesh->strides()[i];
      }
      if (lowest < first || highest >= end) return false;
    }
  }
  return true;
}

Hash128 LoadClasses::class_of(Rank first, Rank end) {
  std::vector<uint64_t> numbers;
  for (Rank rank = first; rank < end; ++rank) {
    const Hash128 plan = plans_->place_of(rank).plan;
    numbers.push_back(load_le64(plan.bytes.data()));
    numbers.push_back(load_le64(plan.bytes.data() + 8));
    // Files are read in the order of their names, which have at least five digits.
    numbers.push_back(shard_file_name(first, 0) <= shard_file_name(rank, 0) ? 1 : 0);
    for (const AttemptKey& key : attempts_) root_.add_header_bytes(key, rank, numbers);
  }
  return xxh3_128(std::as_bytes(std::span(numbers)));
}

Rank LoadClasses::like(Rank rank) {
  if (world_ == nullptr) return rank;
  const Rank host = rank / ranks_per_host_, first = host * ranks_per_host_;
  Rank& known = like_host_[host];
  if (known == kNotKnown) {
    const Rank end = std::min<Rank>(first + ranks_per_host_, static_cast<Rank>(layout_of_.size()));
    known = is_closed(first, end) ? first_of_class_.try_emplace(class_of(first, end), first).first->second
                                  : first;
  }
  return known + (rank - first);
}

}  // namespace shoal::sim
