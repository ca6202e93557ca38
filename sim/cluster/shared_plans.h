// SharedPlans: the plans of all ranks of a simulation, and what is computed from them. Ranks of one plan
// class (plan/saving/plan_classes.h) share the items of one plan: the items of the first rank that asks.
// Where bytes are only counted, the offsets of a rank's boxes do not matter, except for their number of
// digits in a shard's header; shard_bytes counts these digits. Plan ids are not hashes of the items; they
// encode roster and rank.
//
// Ranks that load the same targets share the computed reads. So do hosts whose ranks have equal targets and
// equal readers beside them.
//
// Where bytes are stored too (sim/cluster/stored_payload.h), each rank has the plan that plan_save computes,
// and each load computes its own reads.
#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/loader/sharing/chunk_plan.h"
#include "actors/planner/plan_source.h"
#include "base/paged_map.h"
#include "plan/saving/plan_classes.h"

namespace shoal::sim {

class SharedPlans final : public actors::PlanSource {
 public:
  // Call it before the first plan is requested.
  void give_each_rank_its_own() { each_its_own_ = true; }

  std::unique_ptr<actors::WorldPlans> plans_of(std::shared_ptr<const World> world,
                                               const SaveOptions& options) override;
  Result<SavePlanPtr> plan(const World& world, Rank rank, const SaveOptions& options) override;
  Result<std::shared_ptr<const World>> world_of_one_rank(const LayoutPtr& layout,
                                                         uint32_t world_size) override;
  SavePlanPtr moved(const SavePlanPtr& plan, const RosterId& roster_id) override;
  Status check(const SavePlan& plan, const Layout& layout) override;
  Result<std::vector<actors::operation::WriteShard>> writes(const Layout& layout, const SavePlan& plan,
                                                            const AttemptKey& key, actors::ClientId client,
                                                            const local::Staged& staged) override;
  std::shared_ptr<const Metadata> metadata(const storage::Decision& decision) override;
  std::shared_ptr<actors::StoredCheckpoint> stored(
      std::shared_ptr<const storage::Decision> committed) override;
  Result<std::shared_ptr<const actors::ReadPlan>> reads(actors::StoredCheckpoint& stored,
                                                        const local::LoadTargets& targets) override;
  std::shared_ptr<const actors::ReadBatches> batches(std::shared_ptr<const actors::ReadPlan> plan,
                                                     uint64_t part_bytes) override;
  std::shared_ptr<const actors::ChunkPlan> chunks(const std::vector<actors::UserReads>& users) override;

  // Many ranks will load these very targets.
  void will_be_shared(const local::LoadTargets& targets);

  struct ShardBytes {
    uint64_t file = 0, payload = 0;
  };
  // The size of the file that this write creates: what shard_file_bytes returns for the rank's own pieces.
  Result<ShardBytes> shard_bytes(const actors::operation::WriteShard& write);

 private:
  struct OfRoster {
    OfRoster(const World& world, const SaveOptions& options,
             std::shared_ptr<plan::PlanClasses::Geometries> geometries)
        : classes(world, options, std::move(geometries)) {}
    plan::PlanClasses classes;
    std::unordered_map<Rank, SavePlanPtr> own_plans;  // used if each rank has its own plan
    std::unordered_map<Hash128, SavePlanPtr> plans;   // by plan class
    struct OfRank {
      Hash128 text;  // PlanClasses::Place::text of the rank
      SavePlanPtr plan;
    };
    base::PagedMap<Rank, OfRank> ranks;  // ranks whose plans were requested
    // By class and number of digits of the offsets; per file, how many digits more than in the plan of the
    // class.
    std::unordered_map<Hash128, std::vector<int64_t>> further_digits;
  };
  struct Writes {  // the writes of one class, as its ranks stage
    OfRoster* roster = nullptr;
    SavePlanPtr plan;
    std::vector<actors::operation::WriteShard> writes;
    std::vector<uint64_t> headers, payloads;  // by file; headers do not include padding
  };

  OfRoster& of(const World& world, const SaveOptions& options);
  const std::vector<int64_t>& further_digits(const Writes& of, Rank rank);

  const std::shared_ptr<plan::PlanClasses::Geometries> geometries_ = plan::PlanClasses::make_geometries();
  std::unordered_map<RosterId, std::unique_ptr<OfRoster>> rosters_;
  std::unordered_map<const WriteItem*, std::pair<OfRoster*, SavePlanPtr>> known_;  // by the items of a class
  std::unordered_map<const WriteItem*, std::unordered_map<const local::StagedPiece*, std::unique_ptr<Writes>>>
      writes_;
  std::unordered_map<const storage::ShardPiece*, Writes*> of_pieces_;
  std::unordered_map<LayoutId, std::shared_ptr<const World>> rank_local_worlds_;
  std::vector<local::Staged> kept_;  // keeps the pieces alive, so that no others get the same addresses
  SaveOptions options_;
  bool each_its_own_ = false;
  std::pair<const storage::Decision*, std::shared_ptr<const Metadata>> newest_;
  std::unordered_map<const storage::Decision*, std::shared_ptr<actors::StoredCheckpoint>> stored_;
  // By what the targets are, not by where: the targets themselves need not be kept.
  std::map<std::pair<const actors::StoredCheckpoint*, Hash128>, std::shared_ptr<const actors::ReadPlan>>
      reads_;
  // Hashes of targets by their identity, and the targets, so that no others get the same identity.
  std::unordered_map<const void*, std::pair<local::LoadTargets, Hash128>> shared_targets_;
  std::map<std::pair<const actors::ReadPlan*, uint64_t>, std::shared_ptr<const actors::ReadBatches>> batches_;
  std::unordered_map<Hash128, std::shared_ptr<const actors::ChunkPlan>> chunks_;
};

}  // namespace shoal::sim
