// LoadGroups: which hosts of a shared load need the same parts of a value, computed from the layout that
// their ranks have in common.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "actors/messages/messages.h"
#include "shoal/layout.h"

namespace shoal::actors {

// Hosts by their numbers in a LoadRoster, ascending. Equal groups share one vector.
using HostGroup = std::shared_ptr<const std::vector<uint32_t>>;

// Compares what the ranks of each host hold of a value as a whole. Hosts are in one group if their ranks
// cover the same shards. Hosts whose needs overlap otherwise share nothing.
class LoadGroups {
 public:
  // `group`: index into roster.groups; all its ranks have `layout`. `own_host` is in every group.
  LoadGroups(LayoutPtr layout, const wire::LoadRoster& roster, uint32_t group, uint32_t own_host);

  const HostGroup& hosts_of(const LayoutEntry& entry);  // of the layout

 private:
  using Shards = std::vector<uint64_t>;  // numbers of the shards that a host's ranks hold, ascending
  struct Host {
    uint32_t host = 0;
    std::vector<Rank> ranks;
  };
  HostGroup find(const LayoutEntry& entry) const;
  uint64_t shard_of(const LayoutEntry& entry, Rank rank) const;  // 0: it holds nothing

  const LayoutPtr layout_;
  const uint32_t own_host_;
  std::vector<Host> hosts_;  // ascending
  // By mesh and sharding mesh dimensions, one bit each: all values of one such kind have the same groups.
  std::map<std::pair<uint32_t, uint64_t>, HostGroup> by_kind_;
  std::map<const LayoutEntry*, HostGroup> by_entry_;  // for other shardings
};

}  // namespace shoal::actors
