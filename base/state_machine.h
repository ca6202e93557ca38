// StateMachine: a state whose changes a table lists. No other code assigns the state. The Coordinator keeps
// one for each attempt that it follows, for example, and the transport one for each peer.
//
//   enum class LampState : uint8_t { off, on };
//   enum class LampTrigger : uint8_t { pressed, failed };
//   inline constexpr std::array<Transition<LampState, LampTrigger>, 3> kLampTransitions{{
//       {LampState::off, LampTrigger::pressed, LampState::on},
//       ...
//   }};
//   StateMachine<kLampTransitions> lamp{LampState::off};
//
// docs/reference/states.md shows every table; a test compares page and table. The values of both enumerations
// count up from 0. Their names are those of their enumerators (base/enumerator_names.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/enumerator_names.h"
#include "shoal/check.h"

namespace shoal::base {

// In state `from`, `on` happens: the state is `to` from then on.
template <class S, class T>
struct Transition {
  using State = S;
  using Trigger = T;
  S from;
  T on;
  S to;
};

// How often one row of a table was taken. The names live as long as the program.
struct TransitionCount {
  std::string_view from, on, to;
  uint64_t count = 0;
};

// No (state, trigger) is listed twice: a table says exactly one thing about each.
template <class Table>
constexpr bool is_deterministic(const Table& table) {
  for (size_t row = 0; row < table.size(); ++row) {
    for (size_t other = row + 1; other < table.size(); ++other) {
      if (table[row].from == table[other].from && table[row].on == table[other].on) return false;
    }
  }
  return true;
}

// kTable: a constexpr std::array of Transition with static storage. One byte per machine; not thread-safe.
template <const auto& kTable>
class StateMachine {
  using Row = typename std::remove_cvref_t<decltype(kTable)>::value_type;
  static_assert(is_deterministic(kTable), "the table lists a state and a trigger twice");

 public:
  using State = typename Row::State;
  using Trigger = typename Row::Trigger;

  // How often each row was taken, by all machines that were given this object.
  class Counts {
   public:
    std::vector<TransitionCount> list() const {
      std::vector<TransitionCount> all;
      for (size_t row = 0; row < kTable.size(); ++row) {
        all.push_back({name_of_enumerator(kTable[row].from), name_of_enumerator(kTable[row].on),
                       name_of_enumerator(kTable[row].to), counts_[row]});
      }
      return all;
    }

   private:
    friend class StateMachine;
    std::array<uint64_t, kTable.size()> counts_{};
  };

  constexpr explicit StateMachine(State initial) : state_(initial) {}

  constexpr State state() const { return state_; }
  constexpr bool is(State state) const { return state_ == state; }
  template <class... Others>
  constexpr bool is_one_of(Others... others) const {
    return ((state_ == others) || ...);
  }
  // Whether the table lists this trigger in the present state.
  constexpr bool may(Trigger trigger) const { return find(trigger) < kTable.size(); }

  // Makes the transition. Precondition: may(trigger); anything else is a fault of the program.
  constexpr void on(Trigger trigger, Counts& counts) {
    const size_t row = find(trigger);
    SHOAL_CHECK(row < kTable.size());
    counts.counts_[row] += 1;
    state_ = kTable[row].to;
  }
  // The same for a machine whose rows nobody counts.
  constexpr void on(Trigger trigger) {
    const size_t row = find(trigger);
    SHOAL_CHECK(row < kTable.size());
    state_ = kTable[row].to;
  }

 private:
  constexpr size_t find(Trigger trigger) const {
    for (size_t row = 0; row < kTable.size(); ++row) {
      if (kTable[row].from == state_ && kTable[row].on == trigger) return row;
    }
    return kTable.size();
  }

  State state_;
};

// The table in Markdown, a line for each row, in the order of the table.
template <class Table>
std::string transitions_as_markdown(const Table& table) {
  std::string text = "| state | event | next state |\n|---|---|---|\n";
  for (const auto& row : table) {
    text += "| `" + std::string(name_of_enumerator(row.from)) + "` | `" +
            std::string(name_of_enumerator(row.on)) + "` | `" + std::string(name_of_enumerator(row.to)) +
            "` |\n";
  }
  return text;
}

}  // namespace shoal::base
