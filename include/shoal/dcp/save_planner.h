// SavePlanner: decides what of a state is saved, under which names and as what bytes.
//
//   class HalfPlanner : public dcp::DefaultSavePlanner { ... };      // examples/custom_planner.cpp
//   HalfPlanner planner;
//   auto saved = (*checkpointer)->save(step, state, planner);
//
// Source of the interface: torch.distributed.checkpoint (2.13), planner.py; docs/how-to/planners.md says line
// by line how one is ported. A planner says what its rank holds. Who writes which part of it is Shoal's to
// decide, by the rule of every save (include/shoal/save_plan.h), so that a planner costs no collective and
// works in every mode; but for one with a global plan of its own, which decides that itself, in mode
// collective.
//
// Threads: the calls of one save come from the trainer's thread within Checkpointer::save, in this order:
// set_up_planner, create_local_plan, perhaps create_global_plan, finish_plan, resolve_data for every item of
// the final plan, release. A storage of one's own (include/shoal/dcp/storage.h) may call resolve_data from
// several threads, and again. An error of any step fails the save under its name, on all ranks. Plans are
// made anew for each save; while items stay the same, so do layout and shares.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shoal/checkpointer.h"
#include "shoal/dcp/key_rules.h"
#include "shoal/dcp/types.h"
#include "shoal/status.h"

namespace shoal::dcp {

struct GlobalSavePlan {
  std::vector<SavePlan> plans;  // by rank
  Metadata metadata;            // without storage_meta
};

class SavePlanner {
 public:
  virtual ~SavePlanner() = default;

  // The state, the checkpoint to be, and who this is. The state outlives the save.
  virtual Status set_up_planner(const StateDict& state_dict, const StorageMeta& storage_meta,
                                const Role& role) = 0;
  // What this rank holds and wants in the checkpoint. Each (fqn, chunk) once.
  virtual Result<SavePlan> create_local_plan() = 0;
  // The local plans of all ranks, by rank and without shardings, to what each is to write: items of its local
  // plan, with data for its finish_plan. Here: default_global_plan (include/shoal/dcp/global_plan.h). Called
  // in mode collective, on coordinator_rank, between create_local_plan and finish_plan, if it is overridden.
  // The metadata are not kept.
  virtual Result<GlobalSavePlan> create_global_plan(std::vector<SavePlan> all_plans);
  // Such a planner is refused by name in other modes than collective. LocalSavePlanner, and
  // all that derives from it, has no global plan of its own: its create_global_plan is final, so that the
  // compiler refuses who overrides it there.
  virtual bool overrides_global_plan() const { return true; }
  // The items of the local plan that this rank writes, some in parts (WriteItem::parts). What is returned is
  // used for notes alone: it has the same items, or the save fails.
  virtual Result<SavePlan> finish_plan(SavePlan new_plan) { return new_plan; }
  // The bytes of an item's whole chunk, row-major, in the item's dtype; an object's bytes. Idempotent and
  // thread-safe. `parts` says what of the chunk is written; other bytes are not read, and may be anything.
  virtual Result<Data> resolve_data(const WriteItem& write_item) = 0;
  // Not of DCP: this save reads no more of what resolve_data gave, or failed. What was made for it may go.
  virtual void release() {}
};

// Of planners without a global plan of their own: they work in every mode.
class LocalSavePlanner : public SavePlanner {
 public:
  Result<GlobalSavePlan> create_global_plan(std::vector<SavePlan> all_plans) final {
    return SavePlanner::create_global_plan(std::move(all_plans));
  }
  bool overrides_global_plan() const final { return false; }
};

struct DefaultSavePlannerOptions {
  KeyRules keys;
  bool validate = true;  // the local plan, by validate_local_plan
};

// Code::invalid_argument names the fqn: an item without what its type needs, a key twice, items of one fqn
// that disagree, a chunk out of bounds, or two that overlap on this rank. Whether the chunks of all ranks
// cover each tensor is checked before a save is committed, with or without this.
Status validate_local_plan(const SavePlan& plan);

namespace internal {
class StateItems;
}

// Every value of the state, an item for each box that this rank holds of it, with its sharding; keys by rule.
template <class Base>
class BasicDefaultSavePlanner : public Base {
 public:
  explicit BasicDefaultSavePlanner(DefaultSavePlannerOptions options = {});
  ~BasicDefaultSavePlanner() override;
  BasicDefaultSavePlanner(const BasicDefaultSavePlanner&) = delete;
  BasicDefaultSavePlanner& operator=(const BasicDefaultSavePlanner&) = delete;

  Status set_up_planner(const StateDict& state_dict, const StorageMeta& storage_meta,
                        const Role& role) override;
  Result<SavePlan> create_local_plan() override;
  // A view into the state where the box is contiguous there; else, as of a strided shard, a copy. By the
  // item's index alone.
  Result<Data> resolve_data(const WriteItem& write_item) override;

 protected:
  const DefaultSavePlannerOptions& options() const { return options_; }
  const Role& role() const { return role_; }
  const StorageMeta& storage_meta() const { return storage_meta_; }

 private:
  DefaultSavePlannerOptions options_;
  Role role_;
  StorageMeta storage_meta_;
  std::unique_ptr<internal::StateItems> items_;
};
extern template class BasicDefaultSavePlanner<LocalSavePlanner>;
extern template class BasicDefaultSavePlanner<SavePlanner>;

class DefaultSavePlanner : public BasicDefaultSavePlanner<LocalSavePlanner> {
 public:
  using BasicDefaultSavePlanner::BasicDefaultSavePlanner;
};
// For a planner that overrides create_global_plan.
class DefaultGlobalSavePlanner : public BasicDefaultSavePlanner<SavePlanner> {
 public:
  using BasicDefaultSavePlanner::BasicDefaultSavePlanner;
};

}  // namespace shoal::dcp
