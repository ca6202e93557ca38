// PlannedLoad: turns a planner's load into an ordinary load, of the stored boxes that its items name into the
// memory that the planner provides.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "client/state_dict.h"
#include "shoal/dcp/load_planner.h"

namespace shoal::client {

// One load with a planner. One thread uses it.
class PlannedLoad {
 public:
  explicit PlannedLoad(dcp::LoadPlanner& planner) : planner_(planner) {}
  PlannedLoad(const PlannedLoad&) = delete;
  PlannedLoad& operator=(const PlannedLoad&) = delete;

  // Calls the planner's methods from set_up_planner to resolve_tensor. An error names the method.
  Status plan(const StateDict& state, const dcp::Metadata& metadata, const dcp::Role& role);
  // The values to load, under their stored names. Its memory is valid as long as this object exists.
  const StateDict& state_dict() const { return state_; }
  // This value of state_dict() has arrived completely. Calls commit_tensor unless it was called before: after
  // the end of a node, the load starts again.
  Status arrived(const std::string& stored_fqn);
  bool has_arrived(const std::string& stored_fqn) const { return values_.at(stored_fqn).is_committed; }
  // The load has succeeded. Calls the outstanding commit_tensor, and load_bytes.
  Status finish();

 private:
  struct Value {
    std::shared_ptr<StateDict::Entry> entry;
    std::vector<uint32_t> items;     // indices in the plan
    std::vector<dcp::Tensor> homes;  // for a tensor: the destination of each of `items`
    std::vector<Box> stored;         // for a tensor: the stored box that each of `items` reads
    std::map<Box, uint32_t> places;  // indices in entry->places, by box
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

// Calls all planning methods and returns the final local plan. Requires that `planner` has been set up.
// `prepare` calls the storage's methods.
using PrepareLoad = std::function<Result<dcp::LoadPlan>(dcp::LoadPlan)>;
Result<dcp::LoadPlan> make_load_plan(dcp::LoadPlanner& planner, const dcp::Role& role,
                                     const PrepareLoad& prepare = nullptr);

}  // namespace shoal::client
