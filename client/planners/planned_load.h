// PlannedLoad: a planner's load as an ordinary one, of the stored boxes that its items name into the memory
// that it gives.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "client/state_dict_internal.h"
#include "shoal/dcp/load_planner.h"

namespace shoal::client {

// A load of one planner, on one thread.
class PlannedLoad {
 public:
  explicit PlannedLoad(dcp::LoadPlanner& planner) : planner_(planner) {}
  PlannedLoad(const PlannedLoad&) = delete;
  PlannedLoad& operator=(const PlannedLoad&) = delete;

  // set_up_planner to resolve_tensor. An error names the step.
  Status plan(const StateDict& state, const dcp::Metadata& metadata, const dcp::Role& role);
  // What to load, under the stored names; its memory is good as long as this object is.
  const StateDict& state_dict() const { return state_; }
  // All of this value of state_dict() has arrived: commit_tensor, where that was not done before, since a
  // load may be begun again when a node goes away.
  Status arrived(const std::string& stored_fqn);
  bool has_arrived(const std::string& stored_fqn) const { return values_.at(stored_fqn).is_committed; }
  // The load has ended well: what is left of commit_tensor, and load_bytes.
  Status finish();

 private:
  struct Value {
    std::shared_ptr<StateDict::Entry> entry;
    std::vector<uint32_t> items;     // of the plan
    std::vector<dcp::Tensor> homes;  // parallel to items; of a tensor
    std::vector<Box> stored;         // likewise, what each item reads
    std::map<Box, uint32_t> places;  // of the entry, by box
    bool is_committed = false;
    std::string object;
  };
  Status add_item(uint32_t number, const dcp::Metadata& metadata);
  Status add_box(const dcp::ReadItem& item, const dcp::TensorStorageMetadata& stored, Value& value);
  Status commit(Value& value);

  dcp::LoadPlanner& planner_;
  Rank rank_ = 0;
  dcp::LoadPlan plan_;
  std::map<std::string, Value> values_;  // by stored fqn
  StateDict state_;
};

// The local plan as all steps of planning leave it; `planner` has been set up. `prepare`: the storage's
// steps.
using PrepareLoad = std::function<Result<dcp::LoadPlan>(dcp::LoadPlan)>;
Result<dcp::LoadPlan> make_load_plan(dcp::LoadPlanner& planner, const dcp::Role& role,
                                     const PrepareLoad& prepare = nullptr);

}  // namespace shoal::client
