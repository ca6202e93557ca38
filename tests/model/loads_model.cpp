// Loads: the ranks of a generation choose the checkpoint of a load(latest), while coordinators and nodes of
// this generation and of an earlier one still commit and abort.
//
// What is modelled:
//   - There are three attempts, in the order of their keys. Attempts 1 and 2 belong to an earlier generation.
//     Attempt 3 belongs to the live one; its step lies between theirs, because the job was rolled back.
//   - An attempt has begun once its folder exists. Attempt 2 may begin at any moment; attempt 3, once a rank
//     has finished its first load.
//   - Two writers, the coordinators of the two generations, link, sync and report decisions by the rules of
//     the decisions model.
//   - Every rank loads twice. It reads the load's choice; or it makes sure that the earlier attempts are
//     decided, and publishes a choice.
//   - Some process calls latest() at any time.
//   - A crash of the storage forgets any subset of what was not synced, and calls in progress fail.
//
// Readers are ranks of a job that only reads. They have a load choice of their own. They choose among the
// attempts that are committed when they look, and decide nothing. So an older attempt may still be committed
// above the one that they chose.
#include <fmt/format.h>

#include <array>
#include <compare>

#include "tests/model/models.h"

namespace shoal::model {
namespace {

constexpr int kAttempts = 3, kLoads = 2, kMaxRanks = 3, kWriters = 2;  // kMaxRanks includes readers
// By load: first the choices of the live generation, then those of the readers.
constexpr int kChoices = 2 * kLoads;
constexpr uint8_t kNoHolder = 7;  // a choice: there is no checkpoint

constexpr const char* kOneChoice = "all ranks of a load load the same checkpoint";
constexpr const char* kChosenStays = "what a load chose is committed, and stays";
constexpr const char* kInvisible = "what is not committed is invisible";
constexpr const char* kNotOvertaken = "nothing that had begun before a choice is committed above it";
constexpr const char* kNeverBack = "latest never goes back within a generation";
constexpr const char* kDecideNothing = "readers decide nothing";
constexpr const char* kReadersNeverBack = "the next load of a reader is of nothing older";

const std::vector<Mutation> kMutations = {
    {"choice-not-exclusive", "a load's choice replaces the existing one", kOneChoice},
    {"own-choice-kept", "a rank whose choice was not the first loads its own", kOneChoice},
    {"choice-sent-before-sync", "a choice is acted on before its folder is synced", kOneChoice},
    {"choose-before-decided", "a load chooses while earlier attempts are undecided", kNotOvertaken},
    {"choose-what-may-not-last", "a load chooses by decisions that it has seen, but not synced",
     kChosenStays},
    {"winner-not-read", "a load that puts a tombstone over an attempt takes it for aborted", kNotOvertaken},
    {"uncommitted-chosen", "a load takes the newest attempt that has files", kInvisible},
    {"latest-not-synced", "latest() returns what it has seen, but not synced", kNeverBack},
    {"latest-by-step", "latest is the greatest step, whatever its generation", kNeverBack},
};

const std::vector<Mutation> kReaderMutations = {
    {"readers-decide", "readers see earlier attempts decided, as ranks of the live generation do",
     kDecideNothing},
    {"readers-keep-their-own", "a reader whose choice was not the first loads its own", kOneChoice},
    {"readers-choose-what-may-not-last", "a reader chooses by decisions that it has seen, but not synced",
     kChosenStays},
    {"readers-choose-uncommitted", "a reader takes the newest attempt that has files", kInvisible},
};
const std::vector<Mutation> kNextLoadMutations = {
    {"readers-take-any", "a reader takes any checkpoint, not the newest", kReadersNeverBack},
};

class Loads {
 public:
  enum Value : uint8_t { none, commit, abort };
  enum WriterPhase : uint8_t { idle, holding };
  enum RankPhase : uint8_t {
    asking,      // reads the choice next
    listing,     // lists the attempts next
    burying,     // has put a tombstone over an attempt; syncs its folder and reads the decision next
    confirming,  // has a candidate; syncs and reads again the decisions that the candidate depends on next
    choosing,    // links its choice next
    choice_taken,
    choice_linked,
    loaded
  };
  enum Broken : uint8_t { nothing, went_back, uncommitted_notified, reader_decided };
  struct Attempt {
    uint8_t value, durable, begun;
  };
  struct Choice {
    // begun: a bit per attempt that had begun when the author of the choice listed them
    uint8_t made, durable, attempt, begun;
    // Only for the properties: a rank has acted on notified_attempt; 2: on different ones.
    uint8_t notified, notified_attempt;
  };
  struct Writer {
    uint8_t phase, attempt, held;
  };
  struct Rank {
    uint8_t load, phase, candidate, begun, burying;
    friend auto operator<=>(const Rank&, const Rank&) = default;
  };
  struct State {
    Attempt attempts[kAttempts];
    Choice choices[kChoices];
    Writer writers[kWriters];
    Rank ranks[kMaxRanks];
    uint8_t floor;  // attempt + 1: the greatest that was reported as committed within the live generation
    uint8_t broken;
  };

  Loads(int ranks, int readers, int loads, const std::string& mutation)
      : ranks_(ranks),
        all_ranks_(ranks + readers),
        loads_(loads),
        not_exclusive_(mutation == "choice-not-exclusive"),
        own_kept_(mutation == "own-choice-kept"),
        notified_unsynced_(mutation == "choice-sent-before-sync"),
        undecided_(mutation == "choose-before-decided"),
        unconfirmed_(mutation == "choose-what-may-not-last"),
        winner_not_read_(mutation == "winner-not-read"),
        uncommitted_(mutation == "uncommitted-chosen"),
        latest_unsynced_(mutation == "latest-not-synced"),
        by_step_(mutation == "latest-by-step"),
        readers_decide_(mutation == "readers-decide"),
        readers_keep_own_(mutation == "readers-keep-their-own"),
        readers_unconfirmed_(mutation == "readers-choose-what-may-not-last"),
        readers_uncommitted_(mutation == "readers-choose-uncommitted"),
        readers_take_any_(mutation == "readers-take-any") {}

  State initial() const {
    State state{};
    state.attempts[0].begun = 1;
    return state;
  }

  State canonical(State state) const {
    for (int i = 0; i < all_ranks_; ++i) {
      for (int j = i + 1; j < (i < ranks_ ? ranks_ : all_ranks_); ++j) {
        if (state.ranks[j] < state.ranks[i]) std::swap(state.ranks[i], state.ranks[j]);
      }
    }
    return state;
  }

  const char* violated(const State& state) const {
    if (state.broken == uncommitted_notified) return kInvisible;
    if (state.broken == went_back) return kNeverBack;
    if (state.broken == reader_decided) return kDecideNothing;
    for (int c = 0; c < kChoices; ++c) {
      const Choice& choice = state.choices[c];
      if (!choice.notified) continue;
      if (!choice.made || choice.notified_attempt != choice.attempt || choice.notified == 2)
        return kOneChoice;
      if (choice.attempt != kNoHolder && state.attempts[choice.attempt].value != commit) return kChosenStays;
      const bool is_next = c > kLoads && state.choices[c - 1].notified;  // of a reader
      if (is_next && height(choice.attempt) < height(state.choices[c - 1].attempt)) return kReadersNeverBack;
      for (int a = 0; a < kAttempts && c < kLoads; ++a) {
        if (choice.attempt != kNoHolder && a <= choice.attempt) continue;
        if ((choice.begun >> a & 1) && state.attempts[a].value == commit) return kNotOvertaken;
      }
    }
    return nullptr;
  }

  bool settled(const State& state) const {
    for (int r = 0; r < all_ranks_; ++r) {
      if (state.ranks[r].phase != loaded || state.ranks[r].load != loads_ - 1) return false;
    }
    return true;
  }

  template <class Sink>
  void steps(const State& state, Sink&& sink) const {
    for (int r = 0; r < all_ranks_; ++r) rank_steps(state, r, sink);
    for (int w = 0; w < kWriters; ++w) writer_steps(state, w, sink);
    attempts_begin(state, sink);
    somebody_asks_latest(state, sink);
    storage_crashes(state, sink);
  }

 private:
  static auto label(const char* words) {
    return [words] { return words; };
  }
  static std::string name_of(uint8_t attempt) {
    return attempt == kNoHolder ? std::string("no checkpoint") : fmt::format("attempt {}", attempt + 1);
  }
  static uint8_t begun_bits(const State& state) {
    uint8_t bits = 0;
    for (int a = 0; a < kAttempts; ++a) bits |= static_cast<uint8_t>(state.attempts[a].begun << a);
    return bits;
  }
  static bool link(Attempt& attempt, uint8_t value) {
    if (attempt.value != none) return false;
    attempt.value = value;
    attempt.durable = 0;
    return true;
  }
  uint8_t newest(const State& state) const {
    static constexpr uint8_t kByKey[] = {2, 1, 0}, kByStep[] = {1, 2, 0};
    for (const uint8_t a : by_step_ ? kByStep : kByKey) {
      const Attempt& attempt = state.attempts[a];
      if (attempt.value == commit || (uncommitted_ && attempt.begun && attempt.value != abort)) return a;
    }
    return kNoHolder;
  }

  static uint8_t height(uint8_t attempt) {
    return attempt == kNoHolder ? 0 : static_cast<uint8_t>(attempt + 1);
  }
  bool is_reader(int r) const { return r >= ranks_; }
  int choice_of(int r, int load) const { return is_reader(r) ? kLoads + load : load; }
  static uint8_t decided_bits(const State& state) {
    uint8_t bits = 0;
    for (int a = 0; a < kAttempts; ++a) bits |= static_cast<uint8_t>((state.attempts[a].value != none) << a);
    return bits;
  }

  // A process of the live generation is informed that this attempt is committed; as_newest: that it is the
  // latest.
  static void report_committed(State& state, uint8_t attempt, bool as_newest) {
    if (attempt != kNoHolder && state.attempts[attempt].value != commit) state.broken = uncommitted_notified;
    if (as_newest && height(attempt) < state.floor) state.broken = went_back;
    state.floor = std::max(state.floor, height(attempt));
  }

  template <class Sink>
  void rank_steps(const State& state, int r, Sink& sink) const {
    const Rank& self = state.ranks[r];
    const int chosen = choice_of(r, self.load);
    const Choice& choice = state.choices[chosen];
    auto step = [&](Kind kind, auto&& change, auto&& words) {
      State next = state;
      change(next, next.ranks[r], next.choices[chosen]);
      sink(next, kind, [&] {
        return fmt::format("{} {}, load {}: {}", is_reader(r) ? "reader" : "rank",
                           is_reader(r) ? r - ranks_ + 1 : r + 1, self.load + 1, words());
      });
    };
    auto again = [](State&, Rank& me, Choice&) { me = {me.load, asking, 0, 0, 0}; };
    if (self.phase != asking && self.phase != loaded)
      step(Kind::fault, again, label("its node crashes and requests again"));
    switch (self.phase) {
      case asking:
        if (!choice.made) {
          step(
              Kind::calm, [](State&, Rank& me, Choice&) { me.phase = listing; }, label("finds no choice"));
        } else {
          step(
              Kind::calm,
              [&](State& next, Rank& me, Choice& it) { obey(next, me, it, it.attempt, true, is_reader(r)); },
              [&] { return "reads the choice of " + name_of(choice.attempt) + " and syncs its folder"; });
        }
        break;
      case listing:
        is_reader(r) && !readers_decide_ ? reader_list_steps(state, step)
                                         : list_steps(state, step, is_reader(r));
        break;
      case burying:
        step(
            Kind::calm,
            [&](State& next, Rank& me, Choice&) {
              Attempt& buried = next.attempts[me.burying];
              if (buried.value != none) buried.durable = 1;
              me.phase = listing;
              me.burying = 0;
            },
            [&] { return fmt::format("syncs the folder of attempt {}", self.burying + 1); });
        break;
      case confirming:
        step(
            Kind::calm, [&](State& next, Rank& me, Choice&) { confirm(next, me); },
            [&] { return "reads once more, synced, what " + name_of(self.candidate) + " rests on"; });
        break;
      default:
        choice_steps(self, choice, step, is_reader(r));
    }
  }

  // A reader leaves undecided attempts to the live job.
  template <class Step>
  void reader_list_steps(const State& state, Step& step) const {
    uint8_t best = newest(state);
    for (uint8_t a = 0; a < kAttempts && readers_uncommitted_; ++a) {
      if (state.attempts[a].begun && state.attempts[a].value != abort) best = a;
    }
    auto take = [&](uint8_t candidate) {
      auto change = [&, candidate](State& next, Rank& me, Choice&) {
        me.phase = readers_unconfirmed_ || readers_uncommitted_ ? choosing : confirming;
        me.candidate = candidate;
        me.begun =
            readers_take_any_ ? static_cast<uint8_t>(1 << (candidate % kNoHolder)) : decided_bits(next);
      };
      step(Kind::calm, change, [&, candidate] { return "lists the attempts: " + name_of(candidate); });
    };
    take(best);
    for (uint8_t a = 0; a < kAttempts && readers_take_any_; ++a) {
      if (state.attempts[a].value == commit && a != best) take(a);
    }
  }

  template <class Step>
  void list_steps(const State& state, Step& step, bool of_reader) const {
    const uint8_t best = newest(state);
    bool all_decided = true;
    for (uint8_t a = 0; a < kAttempts && !undecided_ && !uncommitted_; ++a) {
      const Attempt& attempt = state.attempts[a];
      if (!attempt.begun || attempt.value != none || (best != kNoHolder && a < best)) continue;
      all_decided = false;
      auto bury = [&](State& next, Rank& me, Choice&) {
        link(next.attempts[a], abort);
        if (of_reader) next.broken = reader_decided;
        me.phase = burying;
        me.burying = a;
      };
      step(Kind::calm, bury, [&] { return fmt::format("puts a tombstone over attempt {}", a + 1); });
      if (!winner_not_read_) continue;
      auto assume = [&](State& next, Rank& me, Choice&) {
        me.phase = choosing;
        me.candidate = best;
        me.begun = begun_bits(next);
      };
      step(Kind::calm, assume, [&] { return fmt::format("takes attempt {} for aborted", a + 1); });
    }
    if (!all_decided) return;
    auto take = [&](State& next, Rank& me, Choice&) {
      me.phase = unconfirmed_ || undecided_ || uncommitted_ ? choosing : confirming;
      me.candidate = best;
      me.begun = begun_bits(next);
    };
    step(Kind::calm, take, [&] { return "lists the attempts: " + name_of(best); });
  }

  // The rank reads and syncs again what it saw, so that it lasts: the candidate, and every tombstone above
  // it.
  void confirm(State& next, Rank& me) const {
    bool as_seen = me.candidate == kNoHolder || next.attempts[me.candidate].value == commit;
    for (uint8_t a = 0; a < kAttempts; ++a) {
      if (!(me.begun >> a & 1) || (me.candidate != kNoHolder && a < me.candidate)) continue;
      Attempt& attempt = next.attempts[a];
      if (attempt.value == none || (attempt.value == commit && a != me.candidate)) as_seen = false;
      if (attempt.value != none) attempt.durable = 1;
    }
    if (!as_seen) me = {me.load, listing, 0, 0, 0};
    if (as_seen) me.phase = choosing;
  }

  template <class Step>
  void choice_steps(const Rank& self, const Choice& choice, Step& step, bool of_reader) const {
    if (self.phase == choosing && choice.made && !not_exclusive_) {
      step(
          Kind::calm, [](State&, Rank& me, Choice&) { me.phase = choice_taken; },
          label("finds a choice made"));
    } else if (self.phase == choosing) {
      for (const bool answer_lost : {false, true}) {
        auto link_it = [&](State&, Rank& me, Choice& it) {
          it.durable = it.made;  // under choice-not-exclusive the name may exist and be durable already
          it.made = 1;
          it.attempt = me.candidate;
          it.begun = me.begun;
          me.phase = answer_lost ? choice_taken : choice_linked;
        };
        step(answer_lost ? Kind::fault : Kind::calm, link_it, [&] {
          return fmt::format("links its choice of {}{}", name_of(self.candidate),
                             answer_lost ? ", but the answer is that one exists" : "");
        });
      }
    } else if (self.phase == choice_taken || self.phase == choice_linked) {
      const bool keeps_own = own_kept_ || (of_reader && readers_keep_own_);
      const uint8_t attempt = keeps_own || self.phase == choice_linked ? self.candidate : choice.attempt;
      step(
          Kind::calm,
          [&](State& next, Rank& me, Choice& it) {
            obey(next, me, it, attempt, !notified_unsynced_, of_reader);
          },
          [&] {
            return fmt::format("{} the choices and loads {}", notified_unsynced_ ? "does not sync" : "syncs",
                               name_of(attempt));
          });
    } else if (self.phase == loaded && self.load + 1 < loads_) {
      step(
          Kind::calm,
          [](State&, Rank& me, Choice&) {
            me = {static_cast<uint8_t>(me.load + 1), asking, 0, 0, 0};
          },
          label("comes to its next load"));
    }
  }

  static void obey(State& next, Rank& me, Choice& choice, uint8_t attempt, bool synced, bool of_reader) {
    if (synced) {
      for (Choice& each : next.choices) each.durable = each.made;
    }
    // Ranks have acted on different choices.
    if (choice.notified && choice.notified_attempt != attempt) choice.notified = 2;
    if (!choice.notified) choice.notified = 1;
    choice.notified_attempt = attempt;
    if (of_reader && attempt != kNoHolder && next.attempts[attempt].value != commit) {
      next.broken = uncommitted_notified;
    }
    if (!of_reader && me.load > 0 && attempt != kNoHolder) report_committed(next, attempt, false);
    me = {me.load, loaded, 0, 0, 0};
  }

  // Writer 0 belongs to the earlier generation, writer 1 to the live one.
  template <class Sink>
  void writer_steps(const State& state, int w, Sink& sink) const {
    const Writer& self = state.writers[w];
    auto step = [&](Kind kind, auto&& change, auto&& words) {
      State next = state;
      change(next, next.writers[w]);
      sink(next, kind, [&] {
        return fmt::format("coordinator of the {} generation: {}", w == 0 ? "earlier" : "live", words());
      });
    };
    if (self.phase == holding) {
      step(
          Kind::fault, [](State&, Writer& me) { me = {}; }, label("crashes"));
      auto report = [&](State& next, Writer& me) {
        next.attempts[me.attempt].durable = 1;
        if (me.held == commit && w == 1) report_committed(next, me.attempt, false);
        me = {};
      };
      return step(Kind::calm, report, [&] {
        return fmt::format("syncs and reports that attempt {} is {}", self.attempt + 1,
                           self.held == commit ? "committed" : "aborted");
      });
    }
    for (uint8_t a = w == 0 ? 0 : 2; a < (w == 0 ? 2 : kAttempts); ++a) {
      if (!state.attempts[a].begun) continue;
      // It would read, sync and report the decision; ranks do the same.
      if (state.attempts[a].value != none) continue;
      for (const uint8_t value : {commit, abort}) {
        if (value == commit && a == 2 && !all_loaded_once(state)) continue;
        auto publish = [&](State& next, Writer& me) {
          link(next.attempts[a], value);
          me = {holding, a, value};
        };
        step(Kind::calm, publish, [&] {
          return fmt::format("links a {} for attempt {}", value == commit ? "manifest" : "tombstone", a + 1);
        });
      }
    }
  }

  bool all_loaded_once(const State& state) const {
    for (int r = 0; r < ranks_; ++r) {
      if (state.ranks[r].load == 0 && state.ranks[r].phase != loaded) return false;
    }
    return true;
  }

  template <class Sink>
  void attempts_begin(const State& state, Sink& sink) const {
    for (const int a : {1, 2}) {
      if (state.attempts[a].begun) continue;
      bool may = a == 1 || ranks_ == 0;
      for (int r = 0; r < ranks_; ++r) may = may || state.ranks[r].load > 0 || state.ranks[r].phase == loaded;
      if (!may) continue;
      State next = state;
      next.attempts[a].begun = 1;
      sink(next, Kind::calm, [&] { return fmt::format("attempt {}: its first file is there", a + 1); });
    }
  }

  template <class Sink>
  void somebody_asks_latest(const State& state, Sink& sink) const {
    const uint8_t best = newest(state);
    if (best == kNoHolder && state.floor == 0) return;
    State next = state;
    if (!latest_unsynced_ && best != kNoHolder) next.attempts[best].durable = 1;
    report_committed(next, best, true);
    sink(next, Kind::calm, [&] { return "somebody learns that latest is " + name_of(best); });
  }

  template <class Sink>
  void storage_crashes(const State& state, Sink& sink) const {
    std::array<int, kAttempts + kChoices> unsynced{};
    int count = 0;
    for (int a = 0; a < kAttempts; ++a) {
      if (state.attempts[a].value != none && !state.attempts[a].durable) unsynced[count++] = a;
    }
    for (int k = 0; k < kChoices; ++k) {
      if (state.choices[k].made && !state.choices[k].durable) unsynced[count++] = kAttempts + k;
    }
    if (count == 0) return;
    for (int kept = 0; kept < 1 << count; ++kept) {
      State next = state;
      for (int i = 0; i < count; ++i) crash_entry(next, unsynced[i], (kept >> i & 1) != 0);
      for (Writer& writer : next.writers) writer = {};
      for (int r = 0; r < all_ranks_; ++r) {
        Rank& rank = next.ranks[r];
        const bool in_call =
            rank.phase == burying || rank.phase == choice_taken || rank.phase == choice_linked;
        if (in_call) rank = {rank.load, asking, 0, 0, 0};
      }
      sink(next, Kind::fault, [&] {
        std::string words = "the storage crashes";
        for (int i = 0; i < count; ++i) {
          words += fmt::format("; it {} {} {}", (kept >> i & 1) ? "kept" : "forgot",
                               unsynced[i] < kAttempts ? "the decision of attempt" : "the choice of load",
                               unsynced[i] < kAttempts ? unsynced[i] + 1 : unsynced[i] - kAttempts + 1);
        }
        return words;
      });
    }
  }

  static void crash_entry(State& state, int which, bool kept) {
    if (which < kAttempts) {
      Attempt& attempt = state.attempts[which];
      attempt.durable = kept;
      if (!kept) attempt.value = none;
      return;
    }
    Choice& choice = state.choices[which - kAttempts];
    choice.durable = kept;
    if (!kept) choice = {0, 0, 0, 0, choice.notified, choice.notified_attempt};
  }

  // ranks_: of the live generation; all_ranks_: readers too; loads_: per rank
  const int ranks_, all_ranks_, loads_;
  const bool not_exclusive_, own_kept_, notified_unsynced_, undecided_, unconfirmed_, winner_not_read_,
      uncommitted_, latest_unsynced_, by_step_, readers_decide_, readers_keep_own_, readers_unconfirmed_,
      readers_uncommitted_, readers_take_any_;
};

}  // namespace

NamedModel loads_model(int ranks) {
  auto check = [=](const std::string& mutation) {
    const Loads model(ranks, 0, kLoads, mutation);
    return Checker<Loads>(model).run(kStatesMax);
  };
  return {"loads",
          fmt::format("{} attempts of two generations, {} ranks, {} loads each", kAttempts, ranks, kLoads),
          kMutations, check};
}

NamedModel readers_model(int readers, int loads) {
  auto check = [=](const std::string& mutation) {
    const Loads model(0, readers, loads, mutation);
    return Checker<Loads>(model).run(kStatesMax);
  };
  const std::string bounds =
      fmt::format("{} attempts of two generations, {} readers, {} loads each", kAttempts, readers, loads);
  if (loads > 1) return {"readers-next-load", bounds, kNextLoadMutations, check};
  return {"readers", bounds, kReaderMutations, check};
}

}  // namespace shoal::model
