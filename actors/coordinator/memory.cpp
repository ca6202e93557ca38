#include "actors/coordinator/memory.h"

#include "actors/coordinator/coordinator.h"

namespace shoal::actors {

namespace {

constexpr uint64_t kTreeNodeBytes = 32;  // of a node of std::map or std::set, besides the element
constexpr uint64_t kNameBytes = 64;      // typical length of the name of a tensor or host

template <class Map>
uint64_t map_bytes(const Map& map) {
  return map.size() * (sizeof(typename Map::value_type) + kTreeNodeBytes);
}

uint64_t layout_bytes(const LayoutPtr& layout) {
  return layout ? layout->entries().size() * (sizeof(LayoutEntry) + kNameBytes) : 0;
}

uint64_t world_bytes(const World& world) {
  uint64_t sum = (world.roster.layout_runs().size() + world.roster.host_runs().size()) *
                 (sizeof(Run) + sizeof(uint32_t));
  for (const LayoutPtr& layout : world.layouts) sum += layout_bytes(layout);
  return sum;
}

}  // namespace

uint64_t Coordinator::memory_bytes() const {
  uint64_t sum =
      sizeof(*this) + nodes_.size() / 4 + map_bytes(presence_.gone()) + map_bytes(presence_.lost());
  sum += gathering_.ranks_known() * (sizeof(Rank) + sizeof(LayoutId) + kNameBytes + kTreeNodeBytes);
  for (const auto& [node, join] : early_joins_) {
    sum += sizeof(join) + kTreeNodeBytes + join.ranks.size() * sizeof(join.ranks[0]);
  }
  sum += map_bytes(presence_.ranks_of()) + presence_.ranks_reported() * sizeof(Rank) +
         map_bytes(presence_.host_of()) + map_bytes(presence_.expected_by()) + map_bytes(presence_.node_of());
  sum += roster_sent_.size() * (sizeof(NodeId) + sizeof(TimeNs) + kTreeNodeBytes) +
         plans_sent_.size() * (sizeof(AttemptKey) + sizeof(NodeId) + sizeof(TimeNs) + kTreeNodeBytes);
  if (collective_) sum += map_bytes(collective_->host_of);
  for (const auto& roster : rosters_.all()) {
    sum += roster->memory_bytes() + world_bytes(roster->world());
  }
  for (const auto& [id, layout] : layouts_.awaited()) {
    sum += kTreeNodeBytes + sizeof(id) + layout_bytes(layout);
  }
  for (const auto& [key, attempt] : attempts_) {
    const auto& reported = attempt.reported();
    sum += sizeof(attempt) + kTreeNodeBytes + map_bytes(attempt.waiting()) + map_bytes(reported) +
           map_bytes(attempt.early());
    // All ranks have about as many files as the first one.
    if (!reported.empty()) {
      sum += reported.size() * reported.begin()->second.files.size() * sizeof(wire::WrittenFile);
    }
    if (attempt.plan_gather) sum += attempt.plan_gather->bytes();
  }
  for (const auto& [key, overdue] : overdue_) {
    sum += sizeof(overdue) + kTreeNodeBytes + overdue.missing.size() * sizeof(Rank);
  }
  return sum + early_bytes_ + manifests_published_.memory_bytes() +
         decided_.size() * (sizeof(AttemptKey) + sizeof(Outcome) + kTreeNodeBytes);
}

uint64_t coordinator_memory_bytes(const Role& role) {
  const auto* coordinator = dynamic_cast<const Coordinator*>(&role);
  return coordinator == nullptr ? 0 : coordinator->memory_bytes();
}

}  // namespace shoal::actors
