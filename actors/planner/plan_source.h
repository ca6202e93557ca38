// PlanSource: computes for roles what follows from worlds, plans and decisions by arithmetic alone. This
// class computes each value when a role requests it. A host of many nodes overrides it so that they share
// results (sim/cluster/shared_plans.h). The comment of a function names what it calls.
#pragma once

#include <memory>
#include <vector>

#include "actors/operation.h"
#include "local/messages/messages.h"
#include "shoal/metadata.h"
#include "shoal/save_plan.h"
#include "storage/decisions/decision.h"

namespace shoal::actors {

class ReadBatches;
class StoredCheckpoint;
struct ChunkPlan;
struct ReadPlan;
struct UserReads;

// The plans of all ranks of a world, for the coordinator, which checks them. Used by one thread.
class WorldPlans {
 public:
  virtual ~WorldPlans() = default;
  virtual Result<SavePlanPtr> plan(Rank rank) = 0;
};

class PlanSource {
 public:
  virtual ~PlanSource() = default;
  virtual std::unique_ptr<WorldPlans> plans_of(std::shared_ptr<const World> world,
                                               const SaveOptions& options);                     // RankPlans
  virtual Result<SavePlanPtr> plan(const World& world, Rank rank, const SaveOptions& options);  // plan_save
  virtual Result<std::shared_ptr<const World>> world_of_one_rank(const LayoutPtr& layout,
                                                                 uint32_t world_size);  // rank_local_world
  virtual SavePlanPtr moved(const SavePlanPtr& plan, const RosterId& roster_id);        // under_roster
  virtual Status check(const SavePlan& plan, const Layout& layout);                     // check_plan
  // shard_writes (actors/planner/staged_assignment.h)
  virtual Result<std::vector<operation::WriteShard>> writes(const Layout& layout, const SavePlan& plan,
                                                            const AttemptKey& key, ClientId client,
                                                            const local::Staged& staged);
  virtual std::shared_ptr<const Metadata> metadata(const storage::Decision& decision);  // metadata_of
  // What loads of a committed checkpoint compute from its manifest.
  virtual std::shared_ptr<StoredCheckpoint> stored(std::shared_ptr<const storage::Decision> committed);
  // compare_targets, then plan_reads
  virtual Result<std::shared_ptr<const ReadPlan>> reads(StoredCheckpoint& stored,
                                                        const local::LoadTargets& targets);
  virtual std::shared_ptr<const ReadBatches> batches(std::shared_ptr<const ReadPlan> plan,
                                                     uint64_t part_bytes);
  virtual std::shared_ptr<const ChunkPlan> chunks(const std::vector<UserReads>& users);  // plan_chunks
};

}  // namespace shoal::actors
