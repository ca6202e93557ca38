// LoadGroups: which hosts of a shared load need the same parts of a value, computed from the layout that
// their ranks have in common.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "actors/messages/messages.h"
#include "shoal/layout.h"

namespace shoal::actors {

// Hosts by their numbers in a LoadRoster, ascending. Equal groups share one vector.
using HostGroup = std::shared_ptr<const std::vector<uint32_t>>;

// Whether no other rank holds what these ranks hold of the tensors of the layout. False if a mesh alone does
// not say so.
bool hold_alone(const Layout& layout, const std::set<Rank>& ranks);

// Compares what the ranks of each host hold of a value as a whole. Hosts are in one group if their ranks
// cover the same shards. Hosts whose needs overlap otherwise share nothing.
class LoadGroups {
 public:
  // `group`: index into roster->groups; all its ranks have `layout`. `own_host` is in every group.
  LoadGroups(LayoutPtr layout, std::shared_ptr<const wire::LoadRoster> roster, uint32_t group,
             uint32_t own_host);

  const HostGroup& hosts_of(size_t number);  // index into the entries of the layout

 private:
  using Shards = std::vector<uint64_t>;  // numbers of the shards that a host's ranks hold, ascending
  HostGroup find(const LayoutEntry& entry) const;
  std::vector<Rank> ranks_of(uint32_t host) const;
  std::vector<uint32_t> hosts() const;  // of the group, ascending
  // The hosts that may hold what the own host holds, ascending. A job may have many thousands of hosts, and
  // each of them computes its groups, so those that cannot are not compared.
  std::vector<uint32_t> candidates(const LayoutEntry& entry) const;
  std::optional<uint32_t> host_of(Rank rank) const;  // nullopt: it is not of this group
  Shards shards_of(const LayoutEntry& entry, uint32_t host) const;
  uint64_t shard_of(const LayoutEntry& entry, Rank rank) const;  // 0: it holds nothing

  const LayoutPtr layout_;
  const std::shared_ptr<const wire::LoadRoster> roster_;
  const uint32_t group_, own_host_;
  // By mesh and sharding mesh dimensions, one bit each: all values of one such kind have the same groups.
  std::map<std::pair<uint32_t, uint64_t>, HostGroup> by_kind_;
  std::vector<HostGroup> by_entry_;  // by its place in the layout; null: not requested yet
};

}  // namespace shoal::actors
