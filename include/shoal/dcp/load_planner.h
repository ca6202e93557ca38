// LoadPlanner: decides what of a checkpoint goes where in a state.
//
//   dcp::DefaultLoadPlannerOptions rules;
//   rules.allow_partial_load = true;
//   dcp::DefaultLoadPlanner planner(rules);
//   auto loaded = (*checkpointer)->load(state, planner);
//
// Source of the interface: torch.distributed.checkpoint (2.13), planner.py; docs/how-to/planners.md says line
// by line how one is ported.
//
// Threads: the calls of one load come from the trainer's thread within Checkpointer::load: set_up_planner,
// create_local_plan, finish_plan, resolve_tensor for every tensor item, commit_tensor for the items of a
// stored tensor as soon as all of that which this rank asked for has arrived, load_bytes for every object at
// the end. A storage of one's own (include/shoal/dcp/storage.h) makes the last three in an order of its own.
// An error of any step ends the load under its name; what was committed stays.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shoal/checkpointer.h"
#include "shoal/dcp/key_rules.h"
#include "shoal/dcp/types.h"
#include "shoal/load_report.h"
#include "shoal/status.h"

namespace shoal::client {
struct WantedKey;   // client/loading/load_report.h
struct LeftOutKey;  // likewise
}  // namespace shoal::client

namespace shoal {}  // namespace shoal

namespace shoal::dcp {

class LoadPlanner {
 public:
  virtual ~LoadPlanner() = default;

  // The state to fill, which outlives the load, and what the checkpoint holds.
  virtual Status set_up_planner(const StateDict& state_dict, const Metadata& metadata, const Role& role) = 0;
  virtual Result<LoadPlan> create_local_plan() = 0;
  // The local plans of all ranks, by rank. No rank of a load waits for another, so that it is called where
  // there is one rank alone.
  virtual Result<std::vector<LoadPlan>> create_global_plan(std::vector<LoadPlan> global_plan) {
    return global_plan;
  }
  // Such a planner is refused by name where there are several ranks. Not so LocalLoadPlanner, whose
  // create_global_plan is final.
  virtual bool overrides_global_plan() const { return true; }
  // What it returns is what is read.
  virtual Result<LoadPlan> finish_plan(LoadPlan central_plan) { return central_plan; }

  // An object has arrived, whole.
  virtual Status load_bytes(const ReadItem& read_item, std::string value) = 0;
  // Memory for `lengths` elements of the stored dtype: in the state, or the planner's own. It may be written
  // until the load ends, also after an error.
  virtual Result<Tensor> resolve_tensor(const ReadItem& read_item) = 0;
  // All elements are there. Once for each item, with what resolve_tensor returned.
  virtual Status commit_tensor(const ReadItem& read_item, const Tensor& tensor) = 0;

  // What create_local_plan found, also where it failed; LoadResult::report and Checkpointer::load_report are
  // that. nullptr: it says nothing of it.
  virtual const LoadReport* load_report() const { return nullptr; }
};

// Of planners without a global plan of their own.
class LocalLoadPlanner : public LoadPlanner {
 public:
  Result<std::vector<LoadPlan>> create_global_plan(std::vector<LoadPlan> global_plan) final {
    return global_plan;
  }
  bool overrides_global_plan() const final { return false; }
};

struct DefaultLoadPlannerOptions {
  KeyRules keys;  // values left out stay as they are; renames lead from the state's names to the stored ones
  // Which keys may be missing or unexpected: by the state's names where it has them, else by the
  // checkpoint's. What is not allowed is one error, as are values of another type, dtype or shape in any
  // case: Code::invalid_argument, which names them. What `keys` leaves out is neither.
  KeyPolicies policies;
  // As in DCP: all that is missing stays as it is, in subtrees with a policy of their own too.
  bool allow_partial_load = false;
};

namespace internal {
class StateItems;
}
class SpmdLoadPlanner;  // include/shoal/dcp/spmd_planner.h

// Fills the state's tensors in place, every copy of a tile that this rank holds, and replaces its objects.
class DefaultLoadPlanner : public LocalLoadPlanner {
 public:
  explicit DefaultLoadPlanner(DefaultLoadPlannerOptions options = {});
  ~DefaultLoadPlanner() override;
  DefaultLoadPlanner(const DefaultLoadPlanner&) = delete;
  DefaultLoadPlanner& operator=(const DefaultLoadPlanner&) = delete;

  Status set_up_planner(const StateDict& state_dict, const Metadata& metadata, const Role& role) override;
  // An item for each of the rank's boxes and each stored chunk that it meets; without elements, none.
  Result<LoadPlan> create_local_plan() override;
  Status load_bytes(const ReadItem& read_item, std::string value) override;
  Result<Tensor> resolve_tensor(const ReadItem& read_item) override;
  Status commit_tensor(const ReadItem& read_item, const Tensor& tensor) override;

  // By the state's names, but for unexpected keys.
  const LoadReport* load_report() const override { return &report_; }
  // What was missing, and is left as it was.
  const std::vector<std::string>& missing() const { return report_.missing; }

 protected:
  const DefaultLoadPlannerOptions& options() const { return options_; }
  const Metadata& metadata() const { return metadata_; }
  const Role& role() const { return role_; }

 private:
  friend class SpmdLoadPlanner;
  // Of the state's values; `others` are held against the checkpoint with them, and are readable where that
  // has them as they are wanted. `left_out`: what the caller leaves out.
  Result<LoadPlan> plan_beside(const std::vector<client::WantedKey>& others,
                               std::vector<client::LeftOutKey> left_out, std::vector<bool>* readable);

  DefaultLoadPlannerOptions options_;
  Metadata metadata_;
  Role role_;
  LoadReport report_;
  std::unique_ptr<internal::StateItems> items_;
};

// The items that bring `box` of a stored tensor to the piece `dest` of a state, which is that box.
void append_read_items(const MetadataIndex& dest, const Box& box, const std::string& stored_fqn,
                       const TensorStorageMetadata& stored, std::vector<ReadItem>& out);

// Puts row-major elements into the tensor: `lengths` of them in each dimension. For storages of one's own.
void fill_tensor(const Tensor& tensor, const Dims& lengths, const std::byte* source);
// The item's elements from the row-major bytes of the stored chunk, which has these sizes.
// Code::corrupt: another number of bytes, or the item is not within it.
Status fill_from_chunk(const ReadItem& read_item, const Dims& chunk_sizes, ByteView chunk,
                       const Tensor& tensor);

}  // namespace shoal::dcp
