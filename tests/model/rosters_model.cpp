// Rosters: how each save of a generation whose layouts change gets one roster.
//
// What is modelled:
//   - Saves are numbered 1, 2, …; at most `in_flight` of them are undecided for a rank at a time. At each
//     save a rank has one of two layouts.
//   - A rank plans by the newest roster that it knows, if that roster has the rank's layout. Otherwise it
//     stages all that it holds and waits for the roster of this save.
//   - A rank may receive any roster at any moment. This covers restarted coordinators and late messages.
//   - A coordinator knows what ranks have staged or reported of a save. Once it knows the layouts of all
//     ranks, these layouts make the roster of the save. Ranks that wait write by this roster. The save is
//     committed if every rank wrote the assignment that this roster gives it.
//   - A save may be aborted at any moment. A decision is one step here; the decisions model proves that
//     decisions are exclusive, durable and reported as they are.
//   - The assignment of a rank depends on its own layout. The assignment of rank 1 also depends on the layout
//   of rank
//     2, as if both held a value and divided it.
#include <fmt/format.h>

#include <array>

#include "tests/model/models.h"

namespace shoal::model {
namespace {

constexpr int kRanks = 2, kMaxSaves = 4;
constexpr uint8_t kRosters = 4;

constexpr const char* kNoMix = "what is committed is what one roster gives to each rank";
constexpr const char* kOwnLayout = "a rank writes what it held when it saved";
constexpr const char* kExact =
    "a rank that stages all that it holds writes its assignment of that save's roster";

const std::vector<Mutation> kMutations = {
    {"assignments-not-compared", "a save is committed under its roster, whatever its ranks have planned by",
     kNoMix},
    {"newest-committed", "a save is committed under the roster that a coordinator takes for the newest",
     kNoMix},
    {"layout-not-compared", "a rank plans by the newest roster, also if that has another layout of it",
     kOwnLayout},
    {"named-too-early", "a coordinator names a save's roster before all its ranks have staged", kExact},
    {"any-roster-taken", "a rank that waits takes any roster that has its layout", kExact},
};

class Rosters {
 public:
  enum Value : uint8_t { none, commit, abort };

  struct Save {
    uint8_t value, mixed;  // mixed: the committed assignments do not belong to one roster
  };
  // A layout is 1 or 2; 0 is none. A roster is 1 + (layout of rank 1 - 1) * 2 + (layout of rank 2 - 1).
  struct Rank {
    uint8_t started;  // number of saves that it has started
    uint8_t newest;   // the newest roster that it knows
    uint8_t received[kMaxSaves];
    uint8_t layout[kMaxSaves];  // layout of the save; 0 once the save is decided, when it no longer matters
    uint8_t whole[kMaxSaves];   // 1: it staged all that it holds
    uint8_t wrote[kMaxSaves];   // the roster by which it wrote; 0: it has not written
  };
  struct State {
    Save saves[kMaxSaves];
    Rank ranks[kRanks];
  };

  Rosters(int saves, int in_flight, const std::string& mutation)
      : saves_(saves),
        in_flight_(in_flight),
        not_compared_(mutation == "assignments-not-compared"),
        newest_committed_(mutation == "newest-committed"),
        layout_not_compared_(mutation == "layout-not-compared"),
        too_early_(mutation == "named-too-early"),
        any_taken_(mutation == "any-roster-taken") {}

  State initial() const {
    State state{};
    for (Rank& rank : state.ranks) rank.newest = roster_of(1, 1);
    return state;
  }

  State canonical(State state) const { return state; }

  const char* violated(const State& state) const {
    for (int i = 0; i < saves_; ++i) {
      if (state.saves[i].mixed != 0) return kNoMix;
      const uint8_t roster = roster_of_save(state, i);
      for (int r = 0; r < kRanks; ++r) {
        const Rank& rank = state.ranks[r];
        if (rank.wrote[i] == 0) continue;
        if (layout_in(rank.wrote[i], r) != rank.layout[i]) return kOwnLayout;
        if (rank.whole[i] != 0 && roster != 0 && assignment(rank.wrote[i], r) != assignment(roster, r))
          return kExact;
      }
    }
    return nullptr;
  }

  bool settled(const State& state) const {
    for (const Rank& rank : state.ranks) {
      if (rank.started < saves_) return false;
      for (int i = 0; i < saves_; ++i) {
        if (rank.received[i] == 0) return false;
      }
    }
    return true;
  }

  template <class Sink>
  void steps(const State& state, Sink&& sink) const {
    for (int r = 0; r < kRanks; ++r) rank_steps(state, r, sink);
    for (int i = 0; i < saves_; ++i) {
      if (state.saves[i].value == none) decision_steps(state, i, sink);
    }
  }

 private:
  static uint8_t roster_of(int first, int second) {
    return static_cast<uint8_t>(1 + (first - 1) * 2 + (second - 1));
  }
  static uint8_t layout_in(uint8_t roster, int r) {
    return static_cast<uint8_t>(1 + (r == 0 ? (roster - 1) / 2 : (roster - 1) % 2));
  }
  // The assignment of a rank under a roster, as a number: equal numbers mean equal assignments.
  static uint8_t assignment(uint8_t roster, int r) { return r == 0 ? roster : layout_in(roster, r); }
  // The roster that the save's layouts make; 0 if not all ranks have staged.
  static uint8_t roster_of_save(const State& state, int i) {
    const uint8_t first = state.ranks[0].layout[i], second = state.ranks[1].layout[i];
    return first == 0 || second == 0 ? uint8_t{0} : roster_of(first, second);
  }

  template <class Sink>
  void rank_steps(const State& state, int r, Sink& sink) const {
    const Rank& self = state.ranks[r];
    const int save = self.started;
    if (save < saves_ && (save < in_flight_ || self.received[save - in_flight_] != 0))
      start(state, r, save, sink);
    for (uint8_t roster = 1; roster <= kRosters; ++roster) {
      if (self.started == saves_ || roster == self.newest) continue;
      State next = state;
      next.ranks[r].newest = roster;
      sink(next, Kind::calm, [&] { return fmt::format("rank {} receives {}", r + 1, name(roster)); });
    }
    for (int i = 0; i < self.started; ++i) {
      if (state.saves[i].value != none && self.received[i] == 0) {
        State next = state;
        next.ranks[r].received[i] = 1;
        sink(next, Kind::calm,
             [&] { return fmt::format("rank {} receives the outcome of save {}", r + 1, i + 1); });
      }
      if (state.saves[i].value == none && self.wrote[i] == 0) write_what_waits(state, r, i, sink);
    }
  }

  template <class Sink>
  void start(const State& state, int r, int save, Sink& sink) const {
    for (uint8_t layout = 1; layout <= 2; ++layout) {
      State next = state;
      Rank& rank = next.ranks[r];
      ++rank.started;
      if (state.saves[save].value == none) {
        const bool plans = layout_not_compared_ || layout_in(rank.newest, r) == layout;
        rank.layout[save] = layout;
        if (plans) rank.wrote[save] = rank.newest;
        rank.whole[save] = plans ? 0 : 1;
      }
      sink(next, Kind::calm, [&] {
        return fmt::format("rank {} saves {} with layout {}, {}", r + 1, save + 1, layout,
                           rank.wrote[save] != 0 ? "by " + name(rank.wrote[save]) : "all that it holds");
      });
    }
  }

  template <class Sink>
  void write_what_waits(const State& state, int r, int save, Sink& sink) const {
    const Rank& self = state.ranks[r];
    for (uint8_t roster = 1; roster <= kRosters; ++roster) {
      bool named = roster == roster_of_save(state, save);
      if (too_early_ || any_taken_) named = named || layout_in(roster, r) == self.layout[save];
      // Under named-too-early, the coordinator assumes that the other rank still has its layout of the newest
      // roster.
      if (too_early_ && roster_of_save(state, save) == 0) {
        named = named && layout_in(roster, 1 - r) == layout_in(self.newest, 1 - r);
      }
      if (!named) continue;
      State next = state;
      next.ranks[r].wrote[save] = roster;
      sink(next, Kind::calm, [&] {
        return fmt::format("rank {} writes its assignment of save {} by {}", r + 1, save + 1, name(roster));
      });
    }
  }

  static std::string name(uint8_t roster) {
    return fmt::format("roster ({}, {})", layout_in(roster, 0), layout_in(roster, 1));
  }

  template <class Sink>
  void decision_steps(const State& state, int i, Sink& sink) const {
    bool all_wrote = true, any_staged = false;
    for (const Rank& rank : state.ranks) {
      all_wrote = all_wrote && rank.wrote[i] != 0;
      any_staged = any_staged || rank.layout[i] != 0;
    }
    if (!any_staged) return;
    sink(decided(state, i, abort, 0), Kind::calm, [&] { return fmt::format("save {} is aborted", i + 1); });
    if (!all_wrote) return;
    for (uint8_t roster = 1; roster <= kRosters; ++roster) {
      if (!newest_committed_ && roster != roster_of_save(state, i)) continue;
      bool fits = true;
      for (int r = 0; r < kRanks; ++r) {
        fits = fits && assignment(state.ranks[r].wrote[i], r) == assignment(roster, r) &&
               state.ranks[r].layout[i] == layout_in(roster, r);
      }
      if (!fits && !not_compared_ && !newest_committed_) continue;
      sink(decided(state, i, commit, fits ? 0 : 1), Kind::calm,
           [&] { return fmt::format("save {} is committed under {}", i + 1, name(roster)); });
    }
  }

  // Once a save is decided, how it was written no longer matters; clearing it keeps the state space small.
  static State decided(State state, int i, Value value, uint8_t mixed) {
    state.saves[i] = {value, mixed};
    for (Rank& rank : state.ranks) rank.layout[i] = rank.whole[i] = rank.wrote[i] = 0;
    return state;
  }

  const int saves_, in_flight_;
  const bool not_compared_, newest_committed_, layout_not_compared_, too_early_, any_taken_;
};

}  // namespace

NamedModel rosters_model(int saves, int in_flight) {
  auto check = [=](const std::string& mutation) {
    const Rosters model(saves, in_flight, mutation);
    return Checker<Rosters>(model).run(kStatesMax);
  };
  return {"rosters", fmt::format("{} ranks of two layouts, {} saves, {} in flight", kRanks, saves, in_flight),
          kMutations, check};
}

}  // namespace shoal::model
