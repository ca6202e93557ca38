#include "actors/loader/sharing/load_groups.h"

#include <algorithm>

#include "shoal/hash.h"

namespace shoal::actors {

namespace {

// The mesh dimensions that shard the value; nullopt: a mesh alone does not determine what its ranks hold.
std::optional<uint64_t> sharding_dims(const LayoutEntry& entry) {
  if (std::holds_alternative<GroupSharding>(entry.sharding)) return 0;
  const auto* sharding = std::get_if<MeshSharding>(&entry.sharding);
  if (sharding == nullptr) return std::nullopt;
  uint64_t dims = 0;
  for (size_t i = 0; i < sharding->placements.size(); ++i) {
    if (sharding->placements[i].kind != Placement::Kind::replicate) dims |= uint64_t{1} << i;
  }
  return dims;
}

}  // namespace

LoadGroups::LoadGroups(LayoutPtr layout, const wire::LoadRoster& roster, uint32_t group, uint32_t own_host)
    : layout_(std::move(layout)), own_host_(own_host) {
  std::map<uint32_t, std::vector<Rank>> by_host;
  for (const wire::LoadMembers& members : roster.members) {
    if (members.group != group) continue;
    for (uint32_t i = 0; i < members.count; ++i) by_host[members.host].push_back(members.first + i);
  }
  for (auto& [host, ranks] : by_host) hosts_.push_back({host, std::move(ranks)});
}

const HostGroup& LoadGroups::hosts_of(const LayoutEntry& entry) {
  const std::optional<uint64_t> dims = sharding_dims(entry);
  HostGroup& known = dims ? by_kind_[{mesh_of(entry).value(), *dims}] : by_entry_[&entry];
  if (known == nullptr) known = find(entry);
  return known;
}

// What a rank holds: its place among the shards, or a hash of its boxes. Never 0.
uint64_t LoadGroups::shard_of(const LayoutEntry& entry, Rank rank) const {
  if (const std::optional<uint64_t> dims = sharding_dims(entry)) {
    const Mesh& mesh = layout_->meshes()[mesh_of(entry).value()];
    const std::optional<Dims> coordinate = mesh.coordinate_of(rank);
    if (!coordinate) return 0;
    uint64_t shard = 0;
    for (size_t i = 0; i < coordinate->size(); ++i) {
      if ((*dims >> i & 1) != 0) shard = shard * mesh.shape()[i] + (*coordinate)[i];
    }
    return shard + 1;
  }
  if (!layout_->holds(entry, rank)) return 0;
  const LocalShards held = layout_->shards_of(entry, rank);
  uint64_t hash = held.boxes.size();
  for (const Box& box : held.boxes) hash = hash * 0x9e3779b97f4a7c15 ^ xxh3_64(to_string(box));
  return hash | 1;
}

HostGroup LoadGroups::find(const LayoutEntry& entry) const {
  std::vector<std::pair<uint32_t, Shards>> held;
  const Shards* own = nullptr;
  held.reserve(hosts_.size());
  for (const Host& host : hosts_) {
    Shards shards;
    for (Rank rank : host.ranks) {
      if (const uint64_t shard = shard_of(entry, rank); shard != 0) shards.push_back(shard);
    }
    std::sort(shards.begin(), shards.end());
    shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
    held.emplace_back(host.host, std::move(shards));
    if (host.host == own_host_) own = &held.back().second;
  }
  auto group = std::make_shared<std::vector<uint32_t>>();
  for (const auto& [host, shards] : held) {
    if (host == own_host_ || (own != nullptr && shards == *own)) group->push_back(host);
  }
  if (own == nullptr) *group = {own_host_};
  return group;
}

}  // namespace shoal::actors
