// Fallback: ranks load the latest checkpoint, and may take an older one if the newest is damaged.
//
// What is modelled:
//   - There are three attempts, in the order of their keys. Attempts 1 and 3 are committed. Attempt 2 was
//     left undecided, and its coordinator may still commit or abort it.
//   - Damage may strike any committed attempt at any moment, and is permanent.
//   - Each rank reads the load's choice. If there is none, it looks for the newest committed attempt that it
//     has not found damaged. It puts a tombstone over every undecided attempt above that one, reads all bytes
//     of it, lists the attempts again, and publishes its choice exclusively.
//   - A read may also fail without damage; then the load of that rank fails.
//
// The loads model, not this one, covers what a crash of the storage forgets.
#include <fmt/format.h>

#include <algorithm>
#include <compare>

#include "tests/model/models.h"

namespace shoal::model {
namespace {

constexpr int kAttempts = 3, kRanks = 2;
constexpr uint8_t kNoHolder = 7;  // the choice that there is no checkpoint

constexpr const char* kOneChoice = "all ranks of a load that falls back load the same checkpoint";
constexpr const char* kSound = "what was damaged when the load began is not loaded";
constexpr const char* kNewest = "no sound checkpoint is passed over";
constexpr const char* kNotOvertaken = "nothing undecided is committed above a choice";
constexpr const char* kNotAfresh = "nobody is answered that there is no checkpoint where all are damaged";

const std::vector<Mutation> kMutations = {
    {"publish-before-verified", "a load publishes its choice, and verifies it afterwards", kSound},
    {"each-for-itself", "a rank loads what it has found sound itself, whatever the choice names", kOneChoice},
    {"slow-is-damage", "what cannot be read now counts as damaged", kNewest},
    {"decide-above-the-newest", "only what is above the newest checkpoint is decided, damaged or not",
     kNotOvertaken},
    {"damaged-is-none", "where all are damaged, the choice is that there is none", kNotAfresh},
};

class Fallback {
 public:
  enum Value : uint8_t { none, commit, abort };
  enum Phase : uint8_t { asking, listing, verifying, choosing, loaded, failed };
  struct Attempt {
    uint8_t value, damaged, damaged_before;  // damaged_before: damaged before the first rank began
  };
  struct Choice {
    uint8_t made, attempt, open;  // open: a bit per attempt that was undecided when the choice was published
    // loaded: ranks have loaded notified_attempt; 2: ranks have loaded different attempts
    uint8_t notified, notified_attempt;
  };
  struct Rank {
    // passed: a bit per attempt found damaged; verified: attempt + 1
    uint8_t phase, passed, verified, candidate;
    friend auto operator<=>(const Rank&, const Rank&) = default;
  };
  struct State {
    Attempt attempts[kAttempts];
    Choice choice;
    Rank ranks[kRanks];
    uint8_t begun;
  };

  explicit Fallback(const std::string& mutation)
      : unverified_(mutation == "publish-before-verified"),
        own_(mutation == "each-for-itself"),
        slow_is_damage_(mutation == "slow-is-damage"),
        above_newest_(mutation == "decide-above-the-newest"),
        damaged_is_none_(mutation == "damaged-is-none") {}

  State initial() const {
    State state{};
    state.attempts[0].value = state.attempts[2].value = commit;
    return state;
  }
  State canonical(State state) const {
    std::sort(state.ranks, state.ranks + kRanks);
    return state;
  }

  const char* violated(const State& state) const {
    const Choice& choice = state.choice;
    for (int a = 0; a < kAttempts && choice.made; ++a) {
      const bool is_above = choice.attempt == kNoHolder || a > choice.attempt;
      if (is_above && (choice.open >> a & 1) && state.attempts[a].value == commit) return kNotOvertaken;
    }
    if (!choice.notified) return nullptr;
    if (choice.notified == 2) return kOneChoice;
    if (choice.notified_attempt == kNoHolder) return kNotAfresh;
    if (state.attempts[choice.notified_attempt].damaged_before) return kSound;
    for (int a = choice.notified_attempt + 1; a < kAttempts; ++a) {
      if (state.attempts[a].value == commit && !state.attempts[a].damaged) return kNewest;
    }
    return nullptr;
  }

  bool settled(const State& state) const {
    return std::all_of(state.ranks, state.ranks + kRanks,
                       [](const Rank& rank) { return rank.phase == loaded || rank.phase == failed; });
  }

  template <class Sink>
  void steps(const State& state, Sink&& sink) const {
    for (int r = 0; r < kRanks; ++r) rank_steps(state, r, sink);
    for (uint8_t value : {commit, abort}) {
      if (state.attempts[1].value != none) continue;
      State next = state;
      next.attempts[1].value = value;
      sink(next, Kind::calm, [value] {
        return fmt::format("the earlier coordinator {} attempt 2", value == commit ? "commits" : "aborts");
      });
    }
    for (int a = 0; a < kAttempts; ++a) {
      if (state.attempts[a].value != commit || state.attempts[a].damaged) continue;
      State next = state;
      next.attempts[a].damaged = 1;
      next.attempts[a].damaged_before = !state.begun;
      sink(next, Kind::fault, [a] { return fmt::format("attempt {} is damaged", a + 1); });
    }
  }

 private:
  static std::string name_of(uint8_t attempt) {
    return attempt == kNoHolder ? std::string("no checkpoint") : fmt::format("attempt {}", attempt + 1);
  }
  static uint8_t newest(const State& state, uint8_t passed) {
    for (int a = kAttempts - 1; a >= 0; --a) {
      if (state.attempts[a].value == commit && !(passed >> a & 1)) return static_cast<uint8_t>(a);
    }
    return kNoHolder;
  }
  // The lowest undecided attempt above `best`; kAttempts if there is none.
  static int undecided_above(const State& state, uint8_t best) {
    int a = best == kNoHolder ? 0 : best + 1;
    while (a < kAttempts && state.attempts[a].value != none) ++a;
    return a;
  }
  static void obey(State& next, Rank& me, uint8_t attempt) {
    Choice& choice = next.choice;
    choice.notified = choice.notified && choice.notified_attempt != attempt ? 2 : 1;
    choice.notified_attempt = attempt;
    me = {loaded, 0, 0, 0};
  }

  template <class Sink>
  void rank_steps(const State& state, int r, Sink& sink) const {
    const Rank& self = state.ranks[r];
    auto step = [&](Kind kind, auto&& change, const std::string& words) {
      State next = state;
      change(next, next.ranks[r]);
      sink(next, kind, [&] { return fmt::format("rank {}: {}", r + 1, words); });
    };
    if (self.phase == listing || self.phase == verifying || self.phase == choosing) {
      step(
          Kind::fault,
          [](State&, Rank& me) {
            me = {asking, 0, 0, 0};
          },
          "its node crashes and requests again");
    }
    switch (self.phase) {
      case asking: {
        auto ask = [&](State& next, Rank& me) {
          next.begun = 1;
          me.phase = listing;
          if (state.choice.made && !own_) obey(next, me, state.choice.attempt);
        };
        return step(Kind::calm, ask, "requests the choice");
      }
      case listing:
        return list_step(state, self, step);
      case verifying:
        return verify_steps(state, self, step);
      case choosing:
        return choose_step(state, self, step);
      default:
        return;
    }
  }

  template <class Step>
  void list_step(const State& state, const Rank& self, Step& step) const {
    const uint8_t best = newest(state, self.passed);
    const int open = undecided_above(state, above_newest_ ? newest(state, 0) : best);
    if (open < kAttempts) {
      return step(
          Kind::calm, [open](State& next, Rank&) { next.attempts[open].value = abort; },
          fmt::format("puts a tombstone over attempt {}", open + 1));
    }
    if (best == kNoHolder && !damaged_is_none_) {
      return step(
          Kind::calm,
          [](State&, Rank& me) {
            me = {failed, 0, 0, 0};
          },
          "fails: all are damaged");
    }
    const bool is_ready = best == kNoHolder || unverified_ || self.verified == best + 1;
    auto go = [&](State&, Rank& me) {
      me.phase = is_ready ? choosing : verifying;
      me.candidate = best;
    };
    step(Kind::calm, go, fmt::format("lists the attempts: {}", name_of(best)));
  }

  template <class Step>
  void verify_steps(const State& state, const Rank& self, Step& step) const {
    const uint8_t bit = static_cast<uint8_t>(1 << self.candidate);
    const bool is_damaged = state.attempts[self.candidate].damaged;
    auto verify = [&](State&, Rank& me) {
      me.phase = listing;
      if (is_damaged) {
        me.passed |= bit;
        return;
      }
      me.verified = static_cast<uint8_t>(me.candidate + 1);
    };
    step(Kind::calm, verify,
         fmt::format("reads all of {}, which is {}", name_of(self.candidate),
                     is_damaged ? "damaged" : "sound"));
    auto fail = [&](State&, Rank& me) {
      if (slow_is_damage_) {
        me.phase = listing;
        me.passed |= bit;
      } else {
        me = {failed, 0, 0, 0};
      }
    };
    step(Kind::fault, fail, fmt::format("cannot read {} now", name_of(self.candidate)));
  }

  template <class Step>
  void choose_step(const State& state, const Rank& self, Step& step) const {
    auto choose = [&](State& next, Rank& me) {
      Choice& choice = next.choice;
      if (!choice.made) {
        choice.made = 1;
        choice.attempt = me.candidate;
        for (int a = 0; a < kAttempts; ++a) {
          if (state.attempts[a].value == none) choice.open |= static_cast<uint8_t>(1 << a);
        }
      }
      obey(next, me, own_ ? me.candidate : choice.attempt);
    };
    step(Kind::calm, choose,
         fmt::format("publishes {}, or finds a choice, and loads", name_of(self.candidate)));
  }

  const bool unverified_, own_, slow_is_damage_, above_newest_, damaged_is_none_;
};

}  // namespace

NamedModel fallback_model() {
  auto check = [](const std::string& mutation) {
    const Fallback model(mutation);
    return Checker<Fallback>(model).run(kStatesMax);
  };
  return {"fallback", fmt::format("{} attempts, {} ranks", kAttempts, kRanks), kMutations, check};
}

}  // namespace shoal::model
