// Role: a state machine that takes an event and the time and returns effects. Read this first.
//
// A role does no I/O, reads no clock, draws no random number and iterates no unordered container, so that the
// same objects run live under CAF (actors/caf/) and on virtual time (sim/). Effects of one list are
// independent: what must follow an operation is returned in answer to its completion event. Effects are
// carried out in the order given; each may fail, and the failure comes back as an event (operations) or not
// at all (sends: roles resend).
#pragma once

#include <memory>

#include "actors/config.h"
#include "actors/effect.h"
#include "actors/event.h"
#include "actors/ids.h"

namespace shoal::actors {

class Role {
 public:
  virtual ~Role() = default;
  virtual RoleKind kind() const = 0;
  virtual void handle(TimeNs now, const Event& event, Effects& effects) = 0;
};

std::unique_ptr<Role> make_planner(const NodeFacts& facts);
std::unique_ptr<Role> make_shard_writer(const NodeFacts& facts);
std::unique_ptr<Role> make_loader(const NodeFacts& facts);
std::unique_ptr<Role> make_coordinator(const NodeFacts& facts);

}  // namespace shoal::actors
