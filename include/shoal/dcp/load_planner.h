// LoadPlanner: decides which values of a checkpoint to load, and into which memory.
//
//   dcp::DefaultLoadPlannerOptions rules;
//   rules.allow_partial_load = true;
//   dcp::DefaultLoadPlanner planner(rules);
//   auto loaded = (*checkpointer)->load(state, planner);
//
// Source of the interface: torch.distributed.checkpoint (2.13), planner.py. docs/how-to/planners.md shows
// line by line how to port a planner.
//
// Threads: the trainer's thread makes all calls of one load within Checkpointer::load, in this order.
// set_up_planner; create_local_plan; finish_plan; resolve_tensor for every tensor item; commit_tensor for the
// items of a stored tensor, once everything that this rank requested of it has arrived; at the end load_bytes
// for every object. A custom storage (include/shoal/dcp/storage.h) makes the last three in any order. An
// error of a step ends the load, and its message names the step; committed tensors stay changed.
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
struct LeftOutKey;  // client/loading/load_report.h
}  // namespace shoal::client

namespace shoal::dcp {

class LoadPlanner {
 public:
  virtual ~LoadPlanner() = default;

  // `state_dict` is the state to fill, which outlives the load. `metadata` lists the checkpoint's values.
  virtual Status set_up_planner(const StateDict& state_dict, const Metadata& metadata, const Role& role) = 0;
  virtual Result<LoadPlan> create_local_plan() = 0;
  // Gets and returns the plans of all ranks, by rank. It is called only if there is a single rank, because no
  // rank of a load waits for another.
  virtual Result<std::vector<LoadPlan>> create_global_plan(std::vector<LoadPlan> global_plan) {
    return global_plan;
  }
  // If true, a load with several ranks is Code::invalid_argument, which names the planner. LocalLoadPlanner
  // returns false, and its create_global_plan is final.
  virtual bool overrides_global_plan() const { return true; }
  // The load reads the items of the returned plan.
  virtual Result<LoadPlan> finish_plan(LoadPlan central_plan) { return central_plan; }

  // Receives the whole bytes of an object.
  virtual Status load_bytes(const ReadItem& read_item, std::string value) = 0;
  // Returns memory for `lengths` elements of the stored dtype, in the state or elsewhere. The load may write
  // it until the load ends, even after an error.
  virtual Result<Tensor> resolve_tensor(const ReadItem& read_item) = 0;
  // All elements have arrived. Called once for each item, with the result of resolve_tensor.
  virtual Status commit_tensor(const ReadItem& read_item, const Tensor& tensor) = 0;

  // The differences that create_local_plan found, even if it failed. LoadResult::report and
  // Checkpointer::load_report return it. nullptr: this planner has no report.
  virtual const LoadReport* load_report() const { return nullptr; }
};

// Base class of planners without a global plan.
class LocalLoadPlanner : public LoadPlanner {
 public:
  Result<std::vector<LoadPlan>> create_global_plan(std::vector<LoadPlan> global_plan) final {
    return global_plan;
  }
  bool overrides_global_plan() const final { return false; }
};

struct DefaultLoadPlannerOptions {
  // Values that the rules leave out stay unchanged. Renames map the state's names to the stored ones.
  KeyRules keys;
  // Which keys may be missing or unexpected. Matched by the state's name of a key, or by the checkpoint's if
  // the state has no such key. Code::invalid_argument names all keys that the policies do not allow, and all
  // with another type, dtype or shape. Keys that `keys` leaves out are neither missing nor unexpected.
  KeyPolicies policies;
  // As in DCP: every missing value stays unchanged, also in subtrees that have their own policy.
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
  // One item for each pair of a box of this rank and a stored chunk that intersect.
  Result<LoadPlan> create_local_plan() override;
  Status load_bytes(const ReadItem& read_item, std::string value) override;
  Result<Tensor> resolve_tensor(const ReadItem& read_item) override;
  Status commit_tensor(const ReadItem& read_item, const Tensor& tensor) override;

  // With the state's names; unexpected keys have the checkpoint's.
  const LoadReport* load_report() const override { return &report_; }
  // The missing keys, whose values stay unchanged.
  const std::vector<std::string>& missing() const { return report_.missing; }

 protected:
  const DefaultLoadPlannerOptions& options() const { return options_; }
  const Metadata& metadata() const { return metadata_; }
  const Role& role() const { return role_; }

 private:
  friend class SpmdLoadPlanner;
  // Plans the state's values, and compares `others` with the checkpoint too. (*readable)[i] is set if the
  // checkpoint has others[i] as wanted. `left_out`: keys that the caller leaves out.
  Result<LoadPlan> plan_beside(const std::vector<client::WantedKey>& others,
                               std::vector<client::LeftOutKey> left_out, std::vector<bool>* readable);

  DefaultLoadPlannerOptions options_;
  Metadata metadata_;
  Role role_;
  LoadReport report_;
  std::unique_ptr<internal::StateItems> items_;
};

// Appends the items that copy `box` of a stored tensor to `dest`, the piece of a state with that box.
void append_read_items(const MetadataIndex& dest, const Box& box, const std::string& stored_fqn,
                       const TensorStorageMetadata& stored, std::vector<ReadItem>& out);

// For custom storages: copies row-major elements, `lengths` of them in each dimension, into the tensor.
void fill_tensor(const Tensor& tensor, const Dims& lengths, const std::byte* source);
// For custom storages: copies the item's elements from the row-major bytes of the stored chunk, which has
// the sizes `chunk_sizes`. Code::corrupt: `chunk` has another number of bytes, or the item is not within it.
Status fill_from_chunk(const ReadItem& read_item, const Dims& chunk_sizes, ByteView chunk,
                       const Tensor& tensor);

}  // namespace shoal::dcp
