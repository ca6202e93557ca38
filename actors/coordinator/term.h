// The term of a coordinator: whether it decides, whether it has the first roster of its generation, and
// how far it is with stopping. Each has a state of its own, because each may change at any time: a
// coordinator may be superseded or stopped before there is a roster, and a superseded one is stopped like any
// other.
#pragma once

#include <array>
#include <cstdint>

#include "actors/ids.h"
#include "base/state_machine.h"

namespace shoal::actors {

// --- whether it decides attempts ---

enum class TermState : uint8_t {
  starting,       // The role exists and has received no event.
  deciding,       // It makes rosters and decides attempts.
  serving_loads,  // Its job only reads the root. It chooses checkpoints for loads and does nothing else.
  superseded,     // A later epoch exists. It answers every message with Superseded and decides nothing.
};
enum class TermTrigger : uint8_t {
  started,             // its node has started it
  started_read_only,   // its node has started it, in a job that only reads the root
  later_epoch_exists,  // the root has the record of a later epoch
};

inline constexpr auto kTermTransitions = [] {
  using S = TermState;
  using T = TermTrigger;
  return std::to_array<base::Transition<S, T>>({
      {S::starting, T::started, S::deciding},
      {S::starting, T::started_read_only, S::serving_loads},
      {S::deciding, T::later_epoch_exists, S::superseded},
  });
}();
using TermMachine = base::StateMachine<kTermTransitions>;

// --- whether there is a roster ---

enum class FirstRosterState : uint8_t {
  reading,       // The coordinator reads from the root whether an earlier one has published a roster.
  gathering,     // The root has none. The coordinator gathers the layouts of all ranks.
  contradicted,  // The layouts that the ranks declared make no roster, or may be those of different saves,
                 // because a rank has declared another one since. The first save whose layouts fit makes it.
  publishing,    // Every rank has joined. The coordinator publishes the roster.
  known,         // The generation has a roster.
  refused,       // No roster can be made. Every node that joins is rejected.
};
enum class FirstRosterTrigger : uint8_t {
  none_found,          // the root has no roster, or could not be read
  all_joined,          // every rank has joined, and every layout is here
  layouts_contradict,  // so it is, but these layouts contradict each other, leave a gap, or one has changed
  known,               // a roster is in the root; the first save may have made it
  refused,  // hosts contradict each other, the roster fits no message, or it could not be published
};

inline constexpr auto kFirstRosterTransitions = [] {
  using S = FirstRosterState;
  using T = FirstRosterTrigger;
  return std::to_array<base::Transition<S, T>>({
      {S::reading, T::none_found, S::gathering},
      {S::reading, T::known, S::known},
      {S::reading, T::refused, S::refused},
      {S::gathering, T::all_joined, S::publishing},
      {S::gathering, T::layouts_contradict, S::contradicted},
      {S::gathering, T::known, S::known},
      {S::gathering, T::refused, S::refused},
      {S::contradicted, T::all_joined, S::publishing},
      {S::contradicted, T::layouts_contradict, S::contradicted},
      {S::contradicted, T::known, S::known},
      {S::contradicted, T::refused, S::refused},
      {S::publishing, T::known, S::known},
      {S::publishing, T::refused, S::refused},
      {S::known, T::refused, S::refused},
  });
}();
using FirstRosterMachine = base::StateMachine<kFirstRosterTransitions>;

// --- how far it is with stopping ---

enum class ShutdownState : uint8_t {
  running,                 // Nobody has requested a stop.
  stopping,                // Its node was requested to stop. It aborts attempts that nobody can complete.
  stopping_with_trainers,  // As stopping, but trainers of its host live: another coordinator replaces it.
  finishing,               // No client needs its node any more. It decides what is in flight.
  draining,                // Its node has drained after a request to stop. It decides what is in flight.
  handing_over,  // As draining, but trainers live. It publishes what it has begun and leaves the rest
                 // undecided.
  drained,       // Nothing is in flight here any more, and its node ends.
  handed_over,   // As drained. The next coordinator decides what this one left undecided.
};
enum class ShutdownTrigger : uint8_t {
  stop_requested,                 // event::Stopping; no trainer of its host is attached
  stop_requested_with_trainers,   // event::Stopping; trainers of its host are attached
  drain_requested,                // event::Drain; no trainer of its host is attached
  drain_requested_with_trainers,  // event::Drain; trainers of its host are attached
  others_continue,    // ranks of other hosts outlived host_lost_ms: a coordinator replaces this one
  nothing_in_flight,  // every attempt is decided, and its decision was sent; or it was left
};

inline constexpr auto kShutdownTransitions = [] {
  using S = ShutdownState;
  using T = ShutdownTrigger;
  return std::to_array<base::Transition<S, T>>({
      {S::running, T::stop_requested, S::stopping},
      {S::running, T::stop_requested_with_trainers, S::stopping_with_trainers},
      {S::running, T::drain_requested, S::finishing},
      {S::running, T::drain_requested_with_trainers, S::handing_over},
      {S::stopping, T::drain_requested, S::draining},
      {S::stopping, T::drain_requested_with_trainers, S::handing_over},
      {S::stopping_with_trainers, T::drain_requested, S::draining},
      {S::stopping_with_trainers, T::drain_requested_with_trainers, S::handing_over},
      {S::finishing, T::nothing_in_flight, S::drained},
      {S::draining, T::others_continue, S::handing_over},
      {S::draining, T::nothing_in_flight, S::drained},
      {S::handing_over, T::nothing_in_flight, S::handed_over},
  });
}();
using ShutdownMachine = base::StateMachine<kShutdownTransitions>;

class Shutdown {
 public:
  ShutdownState state() const { return state_.state(); }
  bool may(ShutdownTrigger trigger) const { return state_.may(trigger); }
  void on(TimeNs now, ShutdownTrigger trigger, ShutdownMachine::Counts& counts) {
    if (state_.is(ShutdownState::running)) since_ = now;
    state_.on(trigger, counts);
  }
  TimeNs since() const { return since_; }  // of the first request
  // The node was requested to stop. False if it ends because no client needs it.
  bool is_requested() const { return !state_.is_one_of(ShutdownState::running, ShutdownState::finishing); }
  bool is_draining() const { return state_.may(ShutdownTrigger::nothing_in_flight); }
  // Another coordinator replaces this one.
  bool hands_over() const {
    return state_.is_one_of(ShutdownState::stopping_with_trainers, ShutdownState::handing_over,
                            ShutdownState::handed_over);
  }

 private:
  ShutdownMachine state_{ShutdownState::running};
  TimeNs since_ = 0;
};

}  // namespace shoal::actors
