// SavePlanner: decides which values of a state to save, under which names, and as which bytes.
//
//   class HalfPlanner : public dcp::DefaultSavePlanner { ... };      // examples/custom_planner.cpp
//   HalfPlanner planner;
//   auto saved = (*checkpointer)->save(step, state, planner);
//
// Source of the interface: torch.distributed.checkpoint (2.13), planner.py. docs/how-to/planners.md shows
// line by line how to port a planner.
//
// A planner states what its rank holds. Shoal decides which rank writes which part of it, by the rule for all
// saves (include/shoal/save_plan.h). A planner therefore needs no collective operation and works in every
// mode. The exception is a planner with its own global plan, which makes that decision itself and requires
// mode collective.
//
// Threads: the trainer's thread makes all calls of one save within Checkpointer::save, in this order:
// set_up_planner, create_local_plan, create_global_plan where it applies, finish_plan, resolve_data for every
// item of the final plan, release. A custom storage (include/shoal/dcp/storage.h) may call resolve_data from
// several threads, and repeatedly. An error of a step fails the save on all ranks, and its message names the
// step. Each save makes its plans again; as long as the items stay the same, layout and assignments do too.
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

  // Gets the state, which outlives the save, the checkpoint to be written, and the calling rank.
  virtual Status set_up_planner(const StateDict& state_dict, const StorageMeta& storage_meta,
                                const Role& role) = 0;
  // Returns what this rank holds and what the checkpoint must contain. Each (fqn, chunk) once.
  virtual Result<SavePlan> create_local_plan() = 0;
  // Gets the local plans of all ranks, by rank and without shardings. Returns what each rank must write:
  // items of its local plan, with data for its finish_plan. The default is default_global_plan
  // (include/shoal/dcp/global_plan.h). If overrides_global_plan() is true, a save in mode collective calls it
  // on coordinator_rank, between create_local_plan and finish_plan. The returned metadata are not stored.
  virtual Result<GlobalSavePlan> create_global_plan(std::vector<SavePlan> all_plans);
  // If true, a save in another mode than collective is Code::invalid_argument, which names the planner.
  // LocalSavePlanner returns false. Its create_global_plan is final, so that the compiler rejects a derived
  // planner that overrides it.
  virtual bool overrides_global_plan() const { return true; }
  // Gets the items of the local plan that this rank writes, some of them in parts (WriteItem::parts). The
  // returned plan must have the same items, or the save fails. The planner can only keep notes here.
  virtual Result<SavePlan> finish_plan(SavePlan new_plan) { return new_plan; }
  // Returns the bytes of an item's whole chunk, row-major in the item's dtype, or the bytes of an object.
  // Must be idempotent and thread-safe. The save reads only the bytes of `parts`; the others may have any
  // value.
  virtual Result<Data> resolve_data(const WriteItem& write_item) = 0;
  // Not part of DCP. The save has failed, or no longer reads the results of resolve_data: the planner may
  // free the memory of them.
  virtual void release() {}
};

// Base class of planners without a global plan, which work in every mode.
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

// Code::invalid_argument names the fqn: an item lacks a field that its type needs, a key is there twice,
// items of one fqn disagree, a chunk is out of bounds, or two chunks of this rank overlap. Independently of
// this, the coordinator checks before a commit that the chunks of all ranks cover each tensor.
Status validate_local_plan(const SavePlan& plan);

namespace internal {
class StateItems;
}

// Saves every value of the state that the key rules keep. Makes one item, with the value's sharding, for each
// box that this rank holds.
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
  // Returns a view into the state if the box is contiguous there. Otherwise, as for a strided shard, returns
  // a copy. Only the item's index matters.
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
