// PlannedSave: a planner's save as an ordinary one. Its local plan becomes a state whose memory is named only
// when the share of this rank is known.
#pragma once

#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include "client/planners/plan_exchange.h"
#include "client/state_dict_internal.h"
#include "shoal/dcp/save_planner.h"

namespace shoal::client {

// The class of a planner or storage, for messages.
std::string class_name(const std::type_info& type);

// A save of one planner, on one thread.
class PlannedSave {
 public:
  explicit PlannedSave(dcp::SavePlanner& planner) : planner_(planner) {}
  ~PlannedSave() { planner_.release(); }
  PlannedSave(const PlannedSave&) = delete;
  PlannedSave& operator=(const PlannedSave&) = delete;

  // set_up_planner and create_local_plan; in mode collective create_global_plan, if the planner has one of
  // its own, which waits for all ranks. An error names the step.
  Status plan(const StateDict& state, const AttemptKey& key, const dcp::Role& role, SaveMode mode,
              const dcp::internal::ExchangePlans& exchange);
  // The exchange was used: what is saved follows from what the ranks' planners said to each other.
  bool has_exchanged() const { return has_exchanged_; }
  // What the local plan amounts to; of the structure alone.
  const StateDict& state_dict() const { return state_; }
  // finish_plan and resolve_data, for the rank's share; nullptr: everything held. `bound` is of state_dict().
  // After it the state has memory, until this object ends.
  Status resolve(const BoundState& bound, const SavePlan* share);

 private:
  struct Value {
    std::shared_ptr<StateDict::Entry> entry;
    std::vector<uint32_t> items;        // of the local plan
    std::vector<uint32_t> item_of_box;  // by local box; of a tensor
    std::string object;
  };
  Status make_value(const std::string& fqn, std::vector<uint32_t> items);
  Status make_object(const dcp::WriteItem& item, Value& value);
  Status make_tensor(const dcp::WriteItem& first, Value& value);
  Status match_boxes(const std::vector<Box>& boxes, Value& value);
  void name_places(Value& value);
  dcp::SavePlan final_plan(const BoundState& bound, const SavePlan* share, std::vector<uint32_t>& chosen);
  Status take(const dcp::WriteItem& item, uint32_t number, dcp::Data data);

  dcp::SavePlanner& planner_;
  dcp::Role role_;
  dcp::SavePlan local_;  // or, of a planner with a global plan of its own, what that left of it
  bool follows_planner_ = false;
  bool has_exchanged_ = false;
  std::vector<std::unique_ptr<Value>> values_;  // in the order of state_
  std::vector<uint32_t> value_of_item_;
  StateDict state_;
  std::vector<std::shared_ptr<const void>> owners_;
};

}  // namespace shoal::client
