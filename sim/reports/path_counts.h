// PathCounts: how often the roles of a run did what they can do. It counts the transitions of their states
// (docs/reference/states.md), the events that they handled, and their rare paths (base/rare_path.h). So a
// campaign can say what its failures reached, and notices when roles stop doing something.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/role.h"
#include "base/rare_path.h"

namespace shoal::sim {

// By name. Four kinds of names, where "coordinator" is the role:
//   "coordinator attempt: gathering on all_reported"    a state, and what happened in it
//   "coordinator event: Received ShardsWritten"
//   "coordinator event: OperationDone I/O error"        with the outcome of the operation
//   "coordinator operation: PublishDecision"
//   "rare: coordinator: publishes a tombstone again"
// A transition and a rare path of which the count is 0 exist, but were not taken.
using PathsTaken = std::map<std::string, uint64_t>;

class PathCounts {
 public:
  void handled(actors::RoleKind role, const actors::Event& event);
  void requested(actors::RoleKind role, const actors::Operation& operation);
  // Adds the transitions of a role. Call it once, before the role is destroyed.
  void ended(const actors::Role& role);
  void took(const base::RarePathCounts& rare);

  PathsTaken taken() const;

 private:
  static constexpr size_t kEvents = 32, kDetails = 128;
  struct Handled {
    uint64_t count = 0;
    std::string name;
  };
  // By event; also by message, or by the outcome of an operation.
  std::array<std::vector<Handled>, actors::kRoleCount> handled_{};
  std::map<std::pair<actors::RoleKind, std::string_view>, uint64_t> requested_;
  PathsTaken others_;
};

}  // namespace shoal::sim
