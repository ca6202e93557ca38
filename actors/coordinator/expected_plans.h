// What the coordinator checks reports against: the plan of every rank under the roster in force, worked out
// when first asked and kept as ids and counts only.
#pragma once

#include <memory>
#include <vector>

#include "actors/role.h"
#include "storage/decisions/decision.h"

namespace shoal::actors {

class ExpectedPlans {
 public:
  ExpectedPlans(const NodeFacts& facts, std::shared_ptr<const World> world, SaveOptions options)
      : world_(std::move(world)),
        options_(options),
        source_(facts.plans),
        ranks_(world_->roster.world_size()) {}

  const World& world() const { return *world_; }
  const std::shared_ptr<const World>& world_ptr() const { return world_; }
  const SaveOptions& options() const { return options_; }
  uint64_t memory_bytes() const { return ranks_.size() * sizeof(Expected); }  // without the world

  // OK iff the report's ranks, plan ids, files and byte sums are those of the rule. The message names the
  // rank.
  Status check(const wire::ShardsWritten& report);
  // Null where the rank has it already: `known` is its share_id_of.
  Result<SavePlanPtr> plan_unless(Rank rank, const PlanId& known);
  // Whether the rank writes the very same under both: the same layout, and the same items of it.
  Result<bool> same_share(const ExpectedPlans& other, Rank rank) const;

 private:
  struct Expected {
    bool known = false;
    PlanId id, share_id;
    uint32_t files = 0;
    uint64_t tensor_bytes = 0;
  };
  Result<const Expected*> expected(Rank rank);
  Result<SavePlanPtr> plan_of(Rank rank);  // and keeps what is to be known of it

  std::shared_ptr<const World> world_;
  SaveOptions options_;
  const std::shared_ptr<PlanSource> source_;
  std::unique_ptr<WorldPlans> plans_;  // while some rank's is not known
  std::vector<Expected> ranks_;
  size_t ranks_known_ = 0;
};

}  // namespace shoal::actors
