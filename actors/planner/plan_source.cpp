#include "actors/planner/plan_source.h"

#include <utility>

#include "actors/loader/sharing/chunk_plan.h"
#include "actors/planner/staged_assignment.h"
#include "plan/saving/rank_plans.h"

namespace shoal::actors {

std::unique_ptr<WorldPlans> PlanSource::plans_of(std::shared_ptr<const World> world,
                                                 const SaveOptions& options) {
  struct OfRanks final : WorldPlans {
    OfRanks(std::shared_ptr<const World> world, const SaveOptions& options)
        : plans(std::move(world), options) {}
    Result<SavePlanPtr> plan(Rank rank) override { return plans.plan(rank); }
    plan::RankPlans plans;
  };
  return std::make_unique<OfRanks>(std::move(world), options);
}

Result<SavePlanPtr> PlanSource::plan(const World& world, Rank rank, const SaveOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(SavePlan plan, plan_save(world, rank, options));
  return std::make_shared<const SavePlan>(std::move(plan));
}

Result<std::shared_ptr<const World>> PlanSource::world_of_one_rank(const LayoutPtr& layout,
                                                                   uint32_t world_size) {
  return rank_local_world(layout, world_size);
}

SavePlanPtr PlanSource::moved(const SavePlanPtr& plan, const RosterId& roster_id) {
  return under_roster(plan, roster_id);
}

Status PlanSource::check(const SavePlan& plan, const Layout& layout) {
  return check_plan(plan, layout);
}

Result<std::vector<operation::WriteShard>> PlanSource::writes(const Layout& layout, const SavePlan& plan,
                                                              const AttemptKey& key, ClientId client,
                                                              const local::Staged& staged) {
  return shard_writes(layout, plan, key, client, staged);
}

std::shared_ptr<const Metadata> PlanSource::metadata(const storage::Decision& decision) {
  return std::make_shared<const Metadata>(storage::metadata_of(decision));
}

std::shared_ptr<StoredCheckpoint> PlanSource::stored(std::shared_ptr<const storage::Decision> committed) {
  return std::make_shared<StoredCheckpoint>(std::move(committed));
}

Result<std::shared_ptr<const ReadPlan>> PlanSource::reads(StoredCheckpoint& stored,
                                                          const local::LoadTargets& targets) {
  if (Status status = compare_targets(stored.locator(), targets); !status.ok()) {
    return status.with_context(to_string(stored.key()) + " does not have what this load needs");
  }
  SHOAL_ASSIGN_OR_RETURN(ReadPlan plan, plan_reads(stored, targets));
  return std::make_shared<const ReadPlan>(std::move(plan));
}

std::shared_ptr<const ReadBatches> PlanSource::batches(std::shared_ptr<const ReadPlan> plan,
                                                       uint64_t part_bytes) {
  return std::make_shared<const ReadBatches>(std::move(plan), part_bytes);
}

std::shared_ptr<const ChunkPlan> PlanSource::chunks(const std::vector<UserReads>& users) {
  return std::make_shared<const ChunkPlan>(plan_chunks(users));
}

}  // namespace shoal::actors
