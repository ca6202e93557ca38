// CpuModel: what a node's processor takes to handle an event and to carry out what came of it. Each node
// handles one event at a time (sim/virtual_cluster.h).
//
// Counted: messages and their bytes, events, entries of shard headers, and the plans that a role works out:
// each rank's, once by the writer that writes by it, and once under each roster by the coordinator that
// checks it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "actors/role.h"
#include "sim/profile.h"

namespace shoal {

class CpuModel {
 public:
  // writers_plan: but in mode collective, where ranks are told their plans.
  CpuModel(const CpuCosts& costs, size_t nodes, bool writers_plan)
      : costs_(costs), writers_plan_(writers_plan), planned_(nodes) {}

  // To take an event in. `wire_bytes`: of a message of another node, as it is encoded; else 0.
  TimeNs to_take(const Event& event, uint64_t wire_bytes) const;
  // To do what `role` answered to `event`. `sizes`: of its Sends to other nodes, encoded.
  TimeNs to_answer(size_t node, RoleKind role, const Event& event, const Effects& effects,
                   const std::vector<uint64_t>& sizes);
  // Another process has taken this node's place: it has planned nothing.
  void forget(size_t node) { planned_[node].clear(); }
  // What that much work takes of a node's processor.
  TimeNs on(bool coordinates, TimeNs work) const;
  // How many tensors a rank holds.
  void set_items(std::vector<uint32_t> of_rank) { items_ = std::move(of_rank); }

 private:
  // The first time that this node works out the rank's plan under that roster.
  TimeNs to_plan(size_t node, RoleKind role, const RosterId& roster, Rank rank);

  const CpuCosts costs_;
  const bool writers_plan_;
  std::vector<uint32_t> items_;
  using Plans = std::pair<RoleKind, RosterId>;
  std::vector<std::map<Plans, std::set<Rank>>> planned_;  // by node
};

// The encoded size of a message: what encode_wire gives. A roster's is worked out once.
class MessageSizes {
 public:
  uint64_t of(const WireMessage& message);

 private:
  std::map<RosterId, uint64_t> rosters_;
};

}  // namespace shoal
