// Joining: how far the Planner of a node is with the first roster of its job.
#pragma once

#include <array>
#include <cstdint>

#include "base/state_machine.h"

namespace shoal::actors {

enum class JoiningState : uint8_t {
  idle,     // No rank of this host has declared a layout that needs a roster.
  joining,  // The Planner sends JoinRanks until the coordinator answers.
  known,    // It has a roster. Later rosters replace it.
  adding,   // It has a roster, and sends JoinRanks for ranks that its earlier messages did not name.
  refused,  // No roster can be made. Every client that declares a layout receives the reason.
};
enum class JoiningTrigger : uint8_t {
  layout_declared,  // a rank in mode collective-free has declared what it holds
  ranks_unnamed,    // there is a roster, and no JoinRanks to this coordinator has named some of the ranks
  roster,           // the coordinator sent a roster
  refused,          // the coordinator, or this node, states why there is none
};

inline constexpr auto kJoiningTransitions = [] {
  using S = JoiningState;
  using T = JoiningTrigger;
  return std::to_array<base::Transition<S, T>>({
      {S::idle, T::layout_declared, S::joining},
      {S::idle, T::roster, S::known},
      {S::idle, T::refused, S::refused},
      {S::joining, T::layout_declared, S::joining},
      {S::joining, T::roster, S::known},
      {S::joining, T::refused, S::refused},
      {S::known, T::layout_declared, S::known},
      {S::known, T::ranks_unnamed, S::adding},
      {S::known, T::roster, S::known},
      {S::known, T::refused, S::refused},
      {S::adding, T::layout_declared, S::adding},
      {S::adding, T::roster, S::known},
      {S::adding, T::refused, S::refused},
      {S::refused, T::layout_declared, S::refused},
      {S::refused, T::roster, S::refused},
      {S::refused, T::refused, S::refused},
  });
}();
using JoiningMachine = base::StateMachine<kJoiningTransitions>;

}  // namespace shoal::actors
