// Rosters: how all ranks of a generation come to another roster at the same save.
//
// What is modelled. Saves 1, 2, …; at most K are in flight: no rank starts save i before it has heard the
// decision of save i-K. That decision may name the roster from save i on; one that names none changes
// nothing, and a tombstone that a node publishes names none. Any of several coordinators may publish any
// decision at any moment, naming whatever it likes: the first one stands. (That decisions are exclusive,
// durable and told as they stand is what the decisions model shows; here each is one step.) A rank writes its
// share of a save under the roster that it takes to be in force, and reports it with that roster's name.
#include <fmt/format.h>

#include <array>

#include "tests/model/models.h"

namespace shoal::model {
namespace {

constexpr int kRanks = 2, kMaxSaves = 5, kRosters = 3;

constexpr const char* kNoMix = "no commit mixes rosters";
constexpr const char* kOneRoster = "all ranks write a save under one roster";

const std::vector<Mutation> kMutations = {
    {"switch-at-once", "a rank goes over to a roster as soon as it hears of it", kOneRoster},
    {"start-before-heard", "a rank starts a save before it has heard the decision K saves before",
     kOneRoster},
    {"loser-believed", "a coordinator tells of the roster that it meant to name, whoever won", kOneRoster},
    {"switch-at-once-unchecked", "as switch-at-once, and reports of different rosters are not refused",
     kNoMix},
};

class Rosters {
 public:
  enum Value : uint8_t { none, commit, abort };
  static constexpr uint8_t kNamesNone = 0;  // rosters are numbered from 1: the first one of the generation

  struct Save {
    uint8_t value, names;
  };
  struct Rank {
    uint8_t started;            // saves
    uint8_t heard[kMaxSaves];   // 0: nothing; else 1 + what the decision names
    uint8_t roster[kMaxSaves];  // under which it wrote
    uint8_t newest_heard;       // the roster that it was told of last
  };
  struct State {
    Save saves[kMaxSaves];
    Rank ranks[kRanks];
  };

  Rosters(int saves, int in_flight, const std::string& mutation)
      : saves_(saves),
        in_flight_(in_flight),
        at_once_(mutation == "switch-at-once" || mutation == "switch-at-once-unchecked"),
        not_heard_(mutation == "start-before-heard"),
        loser_believed_(mutation == "loser-believed"),
        unchecked_(mutation == "switch-at-once-unchecked") {}

  State initial() const { return State{}; }

  State canonical(State state) const {
    if (std::memcmp(&state.ranks[1], &state.ranks[0], sizeof(Rank)) < 0)
      std::swap(state.ranks[0], state.ranks[1]);
    return state;
  }

  const char* violated(const State& state) const {
    for (int i = 0; i < saves_; ++i) {
      const uint8_t a = state.ranks[0].roster[i], b = state.ranks[1].roster[i];
      if (a == 0 || b == 0 || a == b) continue;
      if (state.saves[i].value == commit) return kNoMix;
      if (!unchecked_) return kOneRoster;
    }
    return nullptr;
  }

  bool settled(const State& state) const {
    for (const Rank& rank : state.ranks) {
      if (rank.started < saves_) return false;
      for (int i = 0; i < saves_; ++i) {
        if (rank.heard[i] == 0) return false;
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
  // By what this rank has heard: the last roster that a decision named, up to K saves before this one.
  uint8_t in_force(const Rank& rank, int save) const {
    if (at_once_ && rank.newest_heard != kNamesNone) return rank.newest_heard;
    uint8_t roster = 1;
    for (int i = 0; i <= save - in_flight_; ++i) {
      if (rank.heard[i] > 1) roster = static_cast<uint8_t>(rank.heard[i] - 1);
    }
    return roster;
  }

  template <class Sink>
  void rank_steps(const State& state, int r, Sink& sink) const {
    const Rank& self = state.ranks[r];
    const int save = self.started;
    const bool may_start = save < in_flight_ || not_heard_ || self.heard[save - in_flight_] != 0;
    if (save < saves_ && may_start) {
      State next = state;
      const uint8_t roster = in_force(self, save);
      next.ranks[r].roster[save] = roster;
      ++next.ranks[r].started;
      sink(next, Kind::calm,
           [&] { return fmt::format("rank {} writes save {} under roster {}", r + 1, save + 1, roster); });
    }
    for (int i = 0; i < self.started; ++i) {
      if (state.saves[i].value == none || self.heard[i] != 0) continue;
      for (uint8_t names = 0; names < kRosters; ++names) {
        if (names != state.saves[i].names && !loser_believed_) continue;
        State next = state;
        next.ranks[r].heard[i] = static_cast<uint8_t>(1 + names);
        if (names != kNamesNone && at_once_) next.ranks[r].newest_heard = names;
        sink(next, Kind::calm, [&] {
          return fmt::format("rank {} hears the decision of save {}{}", r + 1, i + 1, naming(i, names));
        });
      }
    }
  }

  std::string naming(int save, uint8_t names) const {
    return names == kNamesNone
               ? std::string()
               : fmt::format(", which names roster {} from save {} on", names, save + in_flight_ + 1);
  }

  template <class Sink>
  void decision_steps(const State& state, int i, Sink& sink) const {
    bool all_reported = true, any_started = false;
    for (const Rank& rank : state.ranks) {
      all_reported = all_reported && rank.roster[i] != 0;
      any_started = any_started || rank.roster[i] != 0;
    }
    if (!any_started) return;
    const bool alike = state.ranks[0].roster[i] == state.ranks[1].roster[i];
    for (const uint8_t value : {commit, abort}) {
      if (value == commit && (!all_reported || (!alike && !unchecked_))) continue;
      for (uint8_t names = 0; names < kRosters; ++names) {
        State next = state;
        next.saves[i] = {value, names};
        sink(next, Kind::calm, [&] {
          return fmt::format("save {} is {}{}", i + 1, value == commit ? "committed" : "aborted",
                             naming(i, names));
        });
      }
    }
  }

  const int saves_, in_flight_;
  const bool at_once_, not_heard_, loser_believed_, unchecked_;
};

}  // namespace

NamedModel rosters_model(int saves, int in_flight) {
  auto check = [=](const std::string& mutation) {
    const Rosters model(saves, in_flight, mutation);
    return Checker<Rosters>(model).run(kStatesMax);
  };
  return {"rosters",
          fmt::format("{} ranks, {} saves, {} in flight, {} rosters", kRanks, saves, in_flight, kRosters - 1),
          kMutations, check};
}

}  // namespace shoal::model
