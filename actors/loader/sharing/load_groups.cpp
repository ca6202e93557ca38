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

// The mesh dimensions that replicate, and how many ranks hold the same.
struct Replicas {
  std::vector<bool> dims;
  uint64_t count = 1;
};

Replicas replicas_on(const Mesh& mesh, uint64_t sharding_dims) {
  Replicas replicas;
  for (size_t i = 0; i < mesh.dims(); ++i) {
    replicas.dims.push_back((sharding_dims >> i & 1) == 0);
    if (replicas.dims[i]) replicas.count *= mesh.shape()[i];
  }
  return replicas;
}

}  // namespace

bool hold_alone(const Layout& layout, const std::set<Rank>& ranks) {
  std::set<std::pair<uint32_t, uint64_t>> kinds;
  for (const LayoutEntry& entry : layout.entries()) {
    if (entry.kind == LayoutEntry::Kind::object) continue;  // no host sends these to another
    const std::optional<uint64_t> dims = sharding_dims(entry);
    if (!dims) return false;
    kinds.emplace(mesh_of(entry).value(), *dims);
  }
  for (const auto& [number, dims] : kinds) {
    const Mesh& mesh = layout.meshes()[number];
    const Replicas replicas = replicas_on(mesh, dims);
    if (replicas.count > ranks.size()) return false;
    for (Rank rank : ranks) {
      const std::optional<Dims> coordinate = mesh.coordinate_of(rank);
      if (!coordinate || replicas.count == 1) continue;
      const std::vector<Rank> all = mesh.slice(*coordinate, replicas.dims).ranks();
      if (!std::ranges::all_of(all, [&](Rank each) { return ranks.contains(each); })) return false;
    }
  }
  return true;
}

LoadGroups::LoadGroups(LayoutPtr layout, std::shared_ptr<const wire::LoadRoster> roster, uint32_t group,
                       uint32_t own_host)
    : layout_(std::move(layout)),
      roster_(std::move(roster)),
      group_(group),
      own_host_(own_host),
      by_entry_(layout_->entries().size()) {}

const HostGroup& LoadGroups::hosts_of(size_t number) {
  HostGroup& known = by_entry_[number];
  if (known != nullptr) return known;
  const LayoutEntry& entry = layout_->entries()[number];
  const std::optional<uint64_t> dims = sharding_dims(entry);
  if (!dims) return known = find(entry);
  HostGroup& of_kind = by_kind_[{mesh_of(entry).value(), *dims}];
  if (of_kind == nullptr) of_kind = find(entry);
  return known = of_kind;
}

std::vector<Rank> LoadGroups::ranks_of(uint32_t host) const {
  std::vector<Rank> ranks;
  for (const wire::LoadMembers& members : roster_->members) {
    if (members.group != group_ || members.host != host) continue;
    for (uint32_t i = 0; i < members.count; ++i) ranks.push_back(members.first + i);
  }
  return ranks;
}

std::vector<uint32_t> LoadGroups::hosts() const {
  std::vector<uint32_t> hosts;
  for (const wire::LoadMembers& members : roster_->members) {
    if (members.group == group_) hosts.push_back(members.host);
  }
  std::sort(hosts.begin(), hosts.end());
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  return hosts;
}

std::optional<uint32_t> LoadGroups::host_of(Rank rank) const {
  const std::vector<wire::LoadMembers>& all = roster_->members;
  auto after = std::upper_bound(all.begin(), all.end(), rank,
                                [](Rank of, const wire::LoadMembers& members) { return of < members.first; });
  if (after == all.begin()) return std::nullopt;
  const wire::LoadMembers& members = *--after;
  if (rank - members.first >= members.count || members.group != group_) return std::nullopt;
  return members.host;
}

std::vector<uint32_t> LoadGroups::candidates(const LayoutEntry& entry) const {
  const std::optional<uint64_t> dims = sharding_dims(entry);
  if (!dims) return hosts();
  const Mesh& mesh = layout_->meshes()[mesh_of(entry).value()];
  for (Rank rank : ranks_of(own_host_)) {
    const std::optional<Dims> coordinate = mesh.coordinate_of(rank);
    if (!coordinate) continue;
    // Only replicas of this rank hold its shard.
    const Replicas replicas = replicas_on(mesh, *dims);
    if (replicas.count > roster_->members.size()) return hosts();
    std::vector<uint32_t> hosts;
    for (Rank replica : mesh.slice(*coordinate, replicas.dims).ranks()) {
      if (const std::optional<uint32_t> host = host_of(replica)) hosts.push_back(*host);
    }
    std::sort(hosts.begin(), hosts.end());
    hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
    return hosts;
  }
  return hosts();
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

LoadGroups::Shards LoadGroups::shards_of(const LayoutEntry& entry, uint32_t host) const {
  Shards shards;
  for (Rank rank : ranks_of(host)) {
    if (const uint64_t shard = shard_of(entry, rank); shard != 0) shards.push_back(shard);
  }
  std::sort(shards.begin(), shards.end());
  shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
  return shards;
}

HostGroup LoadGroups::find(const LayoutEntry& entry) const {
  const Shards own = shards_of(entry, own_host_);
  auto group = std::make_shared<std::vector<uint32_t>>();
  bool has_own = false;
  for (uint32_t host : candidates(entry)) {
    if (host == own_host_) has_own = true;
    if (host == own_host_ || shards_of(entry, host) == own) group->push_back(host);
  }
  if (!has_own) *group = {own_host_};
  return group;
}

}  // namespace shoal::actors
