// PlannedSave: turns a planner's save into an ordinary save. The local plan becomes a state, which gets its
// memory once this rank's assignment is known.
#pragma once

#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include "client/planners/plan_gathering.h"
#include "client/state_dict.h"
#include "shoal/dcp/save_planner.h"

namespace shoal::client {

// The class of a planner or storage, for messages.
std::string class_name(const std::type_info& type);

// One save with a planner. One thread uses it.
class PlannedSave {
 public:
  explicit PlannedSave(dcp::SavePlanner& planner) : planner_(planner) {}
  ~PlannedSave() { planner_.release(); }
  PlannedSave(const PlannedSave&) = delete;
  PlannedSave& operator=(const PlannedSave&) = delete;

  // Calls set_up_planner and create_local_plan. If the planner overrides create_global_plan, calls it too, in
  // mode collective; that waits for all ranks. An error names the method.
  Status plan(const StateDict& state, const AttemptKey& key, const dcp::Role& role, SaveMode mode,
              const dcp::internal::ExchangePlans& exchange);
  // plan() used the exchange: the saved items depend on the plans of all ranks.
  bool has_exchanged() const { return has_exchanged_; }
  // The values of the local plan, without memory before resolve().
  const StateDict& state_dict() const { return state_; }
  // Calls finish_plan and resolve_data for what the rank is `assigned`; nullptr: for everything it holds.
  // `bound` is state_dict() bound to this rank. Afterwards the state has memory, until this object ends.
  Status resolve(const BoundState& bound, const SavePlan* assigned);

 private:
  struct Value {
    std::shared_ptr<StateDict::Entry> entry;
    std::vector<uint32_t> items;        // indices in the local plan
    std::vector<uint32_t> item_of_box;  // for a tensor, by local box
    std::string object;
  };
  Status make_value(const std::string& fqn, std::vector<uint32_t> items);
  Status make_object(const dcp::WriteItem& item, Value& value);
  Status make_tensor(const dcp::WriteItem& first, Value& value);
  Status match_boxes(const std::vector<Box>& boxes, Value& value);
  void name_places(Value& value);
  dcp::SavePlan final_plan(const BoundState& bound, const SavePlan* assigned, std::vector<uint32_t>& chosen);
  Status take(const dcp::WriteItem& item, uint32_t number, dcp::Data data);

  dcp::SavePlanner& planner_;
  dcp::Role role_;
  dcp::SavePlan local_;  // the local plan, or what a planner's global plan left of it
  bool follows_planner_ = false;
  bool has_exchanged_ = false;
  std::vector<std::unique_ptr<Value>> values_;  // in the order of state_
  std::vector<uint32_t> value_of_item_;
  StateDict state_;
  std::vector<std::shared_ptr<const void>> owners_;
};

}  // namespace shoal::client
