// Role: a state machine that takes an event and the time, and returns effects. Read this header first.
//
// A role does no I/O, reads no clock, draws no random number, and iterates no unordered container. So the
// same objects run live under CAF (actors/caf/) and on virtual time (sim/).
//
// The role host carries out the effects of one list in the order given. They are independent of each other: a
// role that wants one effect to follow an operation returns it when it handles that operation's
// OperationDone. An effect may fail. A failed operation comes back as an event. A failed send does not: roles
// resend.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "actors/config.h"
#include "actors/effect.h"
#include "actors/event.h"
#include "actors/ids.h"
#include "base/state_machine.h"

namespace shoal::actors {

// How often a role took each row of one of its tables of states (docs/reference/states.md).
struct TransitionsTaken {
  std::string_view machine;
  std::vector<base::TransitionCount> rows;
};

class Role {
 public:
  virtual ~Role() = default;
  virtual RoleKind kind() const = 0;
  virtual void handle(TimeNs now, const Event& event, Effects& effects) = 0;
  // For tests: which transitions were taken. One element a table; none: the role has no table.
  virtual std::vector<TransitionsTaken> transitions() const { return {}; }
};

std::unique_ptr<Role> make_planner(const NodeConfig& config);
std::unique_ptr<Role> make_shard_writer(const NodeConfig& config);
std::unique_ptr<Role> make_loader(const NodeConfig& config);
std::unique_ptr<Role> make_coordinator(const NodeConfig& config);

}  // namespace shoal::actors
