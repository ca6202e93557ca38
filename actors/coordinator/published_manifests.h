// PublishedManifests: counts the rank manifests that nodes report in mode rank-local. Part of the
// Coordinator.
//
// The counts are hints: they tell a node when to look at the root, and the root decides. A node that was
// replaced counts twice, so a set may be called complete too early. A report that is lost leaves it
// incomplete; then nodes find the set by their polls.
#pragma once

#include <cstddef>
#include <cstdint>

#include "actors/ids.h"
#include "actors/messages/messages.h"
#include "actors/recent_map.h"
#include "base/paged_map.h"

namespace shoal::actors {

inline constexpr size_t kMaxSetsCounted = 16;

class PublishedManifests {
 public:
  // Returns true if nodes have reported as many manifests of this attempt as the world has ranks.
  bool take(NodeId from, const wire::ManifestsPublished& report) {
    sets_.put(report.key, {});
    Set& set = *sets_.get(report.key);
    uint32_t& of_node = set.by_node[from];
    set.ranks += report.ranks;
    set.ranks -= of_node;
    of_node = report.ranks;
    return set.ranks >= report.world_size;
  }

  void forget(const AttemptKey& key) {
    if (Set* set = sets_.get(key)) *set = {};
  }

  uint64_t memory_bytes() const {
    uint64_t sum = 0;
    for (const auto& [key, set] : sets_) sum += set.by_node.size() * (sizeof(NodeId) + sizeof(uint32_t));
    return sum;
  }

 private:
  struct Set {
    base::PagedMap<NodeId, uint32_t> by_node;
    uint64_t ranks = 0;  // the sum of by_node
  };
  RecentMap<AttemptKey, Set> sets_{kMaxSetsCounted};
};

}  // namespace shoal::actors
