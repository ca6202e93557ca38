// Checker: a breadth-first checker of a model with explicit states. Read this file first.
//
// It visits every state that the model can reach, each once and in order of distance from the initial state.
// So the trace to a violation is a shortest one. It checks two kinds of property:
//   - Safety: Model::violated names the property that a state violates.
//   - Liveness: from every state, calm steps alone (steps that are not faults) can lead to a settled state.
//     This property means that every attempt can still be decided.
//
// A Model has
//   struct State          bytes only, no padding: the checker compares and hashes states as bytes
//   State initial() const
//   void steps(const State&, Sink&&) const
//                         calls sink(next, Kind, label) for each step; label() describes the step, and the
//                         checker calls it only for traces
//   State canonical(const State&) const
//                         one representative of all states that differ only in the names of equal parts
//   const char* violated(const State&) const     the property that the state violates, or null
//   bool settled(const State&) const             no process has anything left to do
// The methods of a model have no side effects, and the same state always has the same steps.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace shoal::model {

enum class Kind : uint8_t { calm, fault };

inline constexpr const char* kWayLost = "once failures stop, everything is decided and reported";
inline constexpr uint64_t kStatesMax = uint64_t{1} << 31;  // state numbers have 32 bits

struct Violation {
  std::string property;
  std::vector<std::string> trace;  // one line per step, from the initial state
};
struct Outcome {
  uint64_t states = 0;
  uint64_t transitions = 0;
  uint32_t depth = 0;  // steps from the initial state to the farthest one
  double seconds = 0;
  bool complete = false;  // the checker visited every reachable state
  std::optional<Violation> violation;
};

template <class Model>
class Checker {
 public:
  using State = typename Model::State;
  static_assert(std::is_trivially_copyable_v<State> && std::has_unique_object_representations_v<State>);

  explicit Checker(const Model& model) : model_(model), slots_(kFirstSlots, 0) {}

  // Stops at the first violation, when it has visited every state, or after states_max states. Call it once.
  Outcome run(uint64_t states_max) {
    const auto begin = std::chrono::steady_clock::now();
    explore(std::min(states_max, kStatesMax));
    if (outcome_.complete && !outcome_.violation) seek_lost_ways();
    outcome_.states = states_.size();
    outcome_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return std::move(outcome_);
  }

 private:
  static constexpr size_t kFirstSlots = size_t{1} << 16;

  static uint64_t hash(const State& state) {
    unsigned char bytes[sizeof(State)];
    std::memcpy(bytes, &state, sizeof(State));
    uint64_t value = 0x9e3779b97f4a7c15;
    for (size_t i = 0; i < sizeof(State); i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes + i, std::min<size_t>(8, sizeof(State) - i));
      value = (value ^ word) * 0xff51afd7ed558ccd;
      value ^= value >> 32;
    }
    return value;
  }
  static bool same(const State& a, const State& b) { return std::memcmp(&a, &b, sizeof(State)) == 0; }

  // Returns the number of a state. A new state gets the next number; `from` is the state that led to it.
  uint32_t number(const State& state, uint32_t from) {
    if (states_.size() * 2 >= slots_.size()) grow();
    size_t slot = hash(state) & (slots_.size() - 1);
    while (slots_[slot] != 0) {
      if (same(states_[slots_[slot] - 1], state)) return slots_[slot] - 1;
      slot = (slot + 1) & (slots_.size() - 1);
    }
    states_.push_back(state);
    from_.push_back(from);
    slots_[slot] = static_cast<uint32_t>(states_.size());
    return static_cast<uint32_t>(states_.size() - 1);
  }

  void grow() {
    std::vector<uint32_t> wider(slots_.size() * 2, 0);
    for (uint32_t i = 0; i < states_.size(); ++i) {
      size_t slot = hash(states_[i]) & (wider.size() - 1);
      while (wider[slot] != 0) slot = (slot + 1) & (wider.size() - 1);
      wider[slot] = i + 1;
    }
    slots_ = std::move(wider);
  }

  void explore(uint64_t states_max) {
    number(model_.canonical(model_.initial()), 0);
    uint32_t level_ends = 1;
    for (uint32_t at = 0; at < states_.size(); ++at) {
      if (at == level_ends) {
        ++outcome_.depth;
        level_ends = static_cast<uint32_t>(states_.size());
      }
      const State state = states_[at];  // a copy: the vector grows below
      if (const char* property = model_.violated(state)) {
        outcome_.violation = Violation{property, trace_to(at)};
        return;
      }
      if (states_.size() > states_max) return;
      calm_begin_.push_back(calm_.size());
      model_.steps(state, [&](const State& next, Kind kind, auto&&) {
        ++outcome_.transitions;
        const uint32_t to = number(model_.canonical(next), at);
        if (kind == Kind::calm && to != at) calm_.push_back(to);
      });
    }
    calm_begin_.push_back(calm_.size());
    outcome_.complete = true;
  }

  // Reports a state from which no calm steps lead to a settled state. It propagates backwards until nothing
  // changes. Most steps lead to higher numbers, so passes from the last state to the first need few rounds.
  void seek_lost_ways() {
    std::vector<bool> can_settle(states_.size());
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t at = states_.size(); at-- > 0;) {
        if (can_settle[at]) continue;
        bool can = model_.settled(states_[at]);
        for (uint64_t i = calm_begin_[at]; i < calm_begin_[at + 1] && !can; ++i) can = can_settle[calm_[i]];
        if (can) can_settle[at] = changed = true;
      }
    }
    for (uint32_t at = 0; at < states_.size(); ++at) {
      if (can_settle[at]) continue;
      outcome_.violation = Violation{kWayLost, trace_to(at)};
      return;
    }
  }

  // Numbered states are canonical. The trace instead follows a real run of the model whose states have these
  // canonical forms, so a name means the same part in every line of the trace.
  std::vector<std::string> trace_to(uint32_t at) const {
    std::vector<uint32_t> path;
    for (; at != 0; at = from_[at]) path.push_back(at);
    std::vector<std::string> trace;
    State real = model_.initial();
    while (!path.empty()) {
      const State& wanted = states_[path.back()];
      path.pop_back();
      std::optional<State> then;
      model_.steps(real, [&](const State& next, Kind kind, auto&& label) {
        if (then || !same(model_.canonical(next), wanted)) return;
        then = next;
        trace.push_back(std::string(kind == Kind::fault ? "! " : "  ") + label());
      });
      real = *then;
    }
    return trace;
  }

  const Model& model_;
  std::vector<State> states_;
  std::vector<uint32_t> from_;        // the state from which each was first reached
  std::vector<uint32_t> slots_;       // hash table with open addressing: state number + 1, or 0 if empty
  std::vector<uint32_t> calm_;        // the targets of calm steps, state after state
  std::vector<uint64_t> calm_begin_;  // where the targets of each state begin in calm_
  Outcome outcome_;
};

}  // namespace shoal::model
