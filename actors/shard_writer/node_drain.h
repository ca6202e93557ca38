// NodeDrain: whether the ranks of a node still stage saves, and whether the node finishes what it has.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/state_machine.h"

namespace shoal::actors {

enum class NodeDrainState : uint8_t {
  serving,       // No drain was requested.
  draining,      // The node finishes its saves. Its trainers may still stage saves that others have staged.
  handing_over,  // Its trainers did not leave in time: another node continues. This one ends what it writes.
  ranks_ended,   // No rank of this host stages anything more, as the node reports to the coordinator.
  drained,       // The node has finished its saves. It was not requested to stop.
  stopped,       // The node has finished, and stops. Its ranks stage nothing more here.
};
enum class NodeDrainTrigger : uint8_t {
  requested,                    // event::Drain
  patience_over,                // drain_patience_ms have passed, and no trainer is attached
  patience_over_with_trainers,  // drain_patience_ms have passed, and a trainer is attached
  finished,                     // nothing is in flight here, and the node was not requested to stop
  finished_to_stop,             // nothing is in flight here, or another node continues it
};

inline constexpr auto kNodeDrainTransitions = [] {
  using S = NodeDrainState;
  using T = NodeDrainTrigger;
  return std::to_array<base::Transition<S, T>>({
      {S::serving, T::requested, S::draining},
      {S::draining, T::requested, S::draining},
      {S::draining, T::patience_over, S::ranks_ended},
      {S::draining, T::patience_over_with_trainers, S::handing_over},
      {S::draining, T::finished, S::drained},
      {S::draining, T::finished_to_stop, S::stopped},
      {S::handing_over, T::requested, S::handing_over},
      {S::handing_over, T::patience_over, S::ranks_ended},
      {S::handing_over, T::patience_over_with_trainers, S::handing_over},
      {S::handing_over, T::finished, S::drained},
      {S::handing_over, T::finished_to_stop, S::stopped},
      {S::ranks_ended, T::requested, S::ranks_ended},
      {S::ranks_ended, T::patience_over, S::ranks_ended},
      {S::ranks_ended, T::patience_over_with_trainers, S::ranks_ended},
      {S::ranks_ended, T::finished, S::stopped},
      {S::ranks_ended, T::finished_to_stop, S::stopped},
      {S::drained, T::requested, S::draining},
      {S::stopped, T::requested, S::ranks_ended},
  });
}();

class NodeDrain {
 public:
  using Machine = base::StateMachine<kNodeDrainTransitions>;

  NodeDrainState state() const { return state_.state(); }
  void on(NodeDrainTrigger trigger) { state_.on(trigger, counts_); }
  bool is_draining() const {
    return state_.is_one_of(NodeDrainState::draining, NodeDrainState::handing_over,
                            NodeDrainState::ranks_ended);
  }
  bool is_patience_over() const {
    return state_.is_one_of(NodeDrainState::handing_over, NodeDrainState::ranks_ended);
  }
  // No rank of this host stages anything more here.
  bool have_ranks_ended() const {
    return state_.is_one_of(NodeDrainState::ranks_ended, NodeDrainState::stopped);
  }
  std::vector<base::TransitionCount> transitions() const { return counts_.list(); }

 private:
  Machine state_{NodeDrainState::serving};
  Machine::Counts counts_;
};

}  // namespace shoal::actors
