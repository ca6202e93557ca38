// ExpectedPlans: what the coordinator checks reports against. Computes the plan of each rank under one roster
// when it is first needed, and keeps only its ids and counts.
#pragma once

#include <memory>
#include <vector>

#include "actors/role.h"
#include "storage/decisions/decision.h"

namespace shoal::actors {

class ExpectedPlans {
 public:
  ExpectedPlans(const NodeConfig& config, std::shared_ptr<const World> world, SaveOptions options)
      : world_(std::move(world)),
        options_(options),
        source_(config.plans),
        ranks_(world_->roster.world_size()) {}

  const World& world() const { return *world_; }
  const std::shared_ptr<const World>& world_ptr() const { return world_; }
  const SaveOptions& options() const { return options_; }
  uint64_t memory_bytes() const { return ranks_.size() * sizeof(Expected); }  // without the world

  // OK if and only if the report's ranks, plan ids, files and byte sums follow the planning rule. The message
  // names the rank.
  Status check(const wire::ShardsWritten& report);
  // The plan of the rank; null if the rank has it already, that is, if `known` is its assignment_id_of.
  Result<SavePlanPtr> plan_unless(Rank rank, const PlanId& known);
  // Whether the rank writes the same under both rosters: the same layout, and the same items of it.
  Result<bool> same_pieces(const ExpectedPlans& other, Rank rank) const;

 private:
  struct Expected {
    bool known = false;
    PlanId id, part_id;
    uint32_t files = 0;
    uint64_t tensor_bytes = 0;
  };
  Result<const Expected*> expected(Rank rank);
  Result<SavePlanPtr> plan_of(Rank rank);  // also records its ids and counts

  std::shared_ptr<const World> world_;
  SaveOptions options_;
  const std::shared_ptr<PlanSource> source_;
  std::unique_ptr<WorldPlans> plans_;  // until the ids of all ranks are known
  std::vector<Expected> ranks_;
  size_t ranks_known_ = 0;
};

}  // namespace shoal::actors
