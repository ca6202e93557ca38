// Claims: processes start, claim a generation for their run and then an epoch for themselves, serve as the
// coordinator, and notice that a later coordinator exists. A run is one start of a job; two runs may have the
// same job id. A process that is restarted knows which run it belongs to.
//
// What is modelled:
//   - Generations and epochs are numbers. A claim on a number is an entry that is created exclusively in the
//     folder of generations or the folder of epochs.
//   - A crash of the storage forgets or keeps each entry that was not synced. Storage calls in progress fail,
//     and the processes that made them end.
//   - Each process is one incarnation; once it is over, it never acts again. It may crash at any step. A
//     process that takes no step is paused. A paused process may or may not answer a call.
//   - A creation that succeeded may report that the name is taken.
//   - Once, one bit of the highest entry of a folder may flip. The digest of the entry still shows what it
//     was.
//   - Alternatively, both folders are removed once. A serving coordinator checks its claims before each
//     commit. It restores a claim that is missing, and ends if another process owns the number.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tests/model/models.h"

namespace shoal::model {
namespace {

constexpr int kMaxProcesses = 3;
constexpr int kMaxNumber = 6;  // more than all processes together can claim

constexpr const char* kOneHolder = "a number that somebody acts on is his, and nobody else's";
constexpr const char* kOneEpoch = "an incarnation claims one epoch";
constexpr const char* kNeverAgain = "a superseded coordinator never claims again";
constexpr const char* kOneGeneration = "processes of one run act under one generation";
constexpr const char* kOldRunEnds = "a run never goes on under a generation that another has passed";

const std::vector<Mutation> kMutations = {
    {"epoch-not-exclusive", "an epoch's claim replaces the existing one", kOneHolder},
    {"serve-before-sync", "a coordinator serves before the folder of its claim is synced", kOneHolder},
    {"nonce-not-compared", "a claim reported as taken counts as another's without a look", kOneEpoch},
    {"superseded-claims-again", "a superseded coordinator begins again instead of ending", kNeverAgain},
    {"supersession-not-noticed", "a coordinator never looks whether a later epoch exists", kWayLost},
    {"generation-not-exclusive", "a generation's claim replaces the existing one", kOneHolder},
    {"run-not-compared", "a process claims a generation without looking for its run's own", kOneGeneration},
    {"joined-by-job-id", "a run that starts goes on in the generation that has its job id", kOneHolder},
    {"claim-on-what-may-not-last", "a process claims the number after one that may not last", kOneGeneration},
    {"old-run-continues", "a run whose generation was passed goes on under it", kOldRunEnds},
    {"flipped-claim-is-anothers", "a claim of which a bit has flipped counts as another run's",
     kOneGeneration},
    {"flipped-claim-is-free", "the number of a claim of which a bit has flipped is claimed again",
     kOneHolder},
    {"commit-without-a-look", "who serves commits without a look at his claims", kOneHolder},
    {"lost-claim-taken-back", "who finds his number taken by another after a loss takes it back", kOneHolder},
};

class Claims {
 public:
  enum Phase : uint8_t {
    unborn,
    listing,            // lists the generations next
    confirming,         // found no claim of its run; syncs the folder and lists it again next
    making_generation,  // links generation `target` next
    generation_linked,  // syncs the folder of generations next
    looking,            // has a generation; looks at the highest epoch and calls its holder next
    making_epoch,       // links epoch `target` next
    epoch_taken,        // the creation reported that the name is taken
    epoch_linked,       // syncs the folder of epochs next
    serving,
    over
  };
  enum Broken : uint8_t { nothing, claims_again, old_run, acts_on_anothers };

  struct Entry {
    // owner: 0: no entry; else the run (of a generation) or process (of an epoch) + 1
    uint8_t owner, durable;
    uint8_t flipped;
  };
  struct Process {
    uint8_t phase, target, generation, epoch, superseded;
  };
  struct State {
    Entry generations[kMaxNumber];
    Entry epochs[kMaxNumber];
    Process processes[kMaxProcesses];
    uint8_t broken, flips, lost;  // flips, lost: faults that have happened
    uint8_t committed;            // a bit per process: it has committed since the folders were lost
  };

  Claims(int processes, const std::string& mutation)
      : processes_(processes),
        epoch_not_exclusive_(mutation == "epoch-not-exclusive"),
        serve_unsynced_(mutation == "serve-before-sync"),
        nonce_not_compared_(mutation == "nonce-not-compared"),
        claims_again_(mutation == "superseded-claims-again"),
        not_noticed_(mutation == "supersession-not-noticed"),
        generation_not_exclusive_(mutation == "generation-not-exclusive"),
        run_not_compared_(mutation == "run-not-compared"),
        joined_by_id_(mutation == "joined-by-job-id"),
        not_confirmed_(mutation == "claim-on-what-may-not-last"),
        old_run_continues_(mutation == "old-run-continues"),
        flipped_is_anothers_(mutation == "flipped-claim-is-anothers"),
        flipped_is_free_(mutation == "flipped-claim-is-free"),
        commits_blindly_(mutation == "commit-without-a-look"),
        takes_back_(mutation == "lost-claim-taken-back") {}

  State initial() const { return State{}; }
  State canonical(const State& state) const { return state; }

  const char* violated(const State& state) const {
    if (state.broken == claims_again) return kNeverAgain;
    if (state.broken == old_run) return kOldRunEnds;
    if (state.broken == acts_on_anothers) return kOneHolder;
    // Another process may claim a lost number again. What matters then is that only one process commits under
    // it.
    for (int i = 0; i < kMaxNumber && state.lost; ++i) {
      if (committed_under(state, i) > 1) return kOneHolder;
    }
    if (state.lost) return nullptr;
    for (int p = 0; p < processes_; ++p) {
      const Process& self = state.processes[p];
      if (self.epoch != 0 && state.epochs[self.epoch - 1].owner != p + 1) return kOneHolder;
      if (self.generation != 0 && state.generations[self.generation - 1].owner != run_of(p) + 1)
        return kOneHolder;
      int epochs = 0;
      for (const Entry& entry : state.epochs) epochs += entry.owner == p + 1;
      if (epochs > 1) return kOneEpoch;
      for (int other = 0; other < p; ++other) {
        const uint8_t generation = state.processes[other].generation;
        if (run_of(other) != run_of(p) || generation == 0 || self.generation == 0) continue;
        if (generation != self.generation) return kOneGeneration;
      }
    }
    return nullptr;
  }

  // Every process that has started serves or is over, and only the holder of the highest epoch serves.
  bool settled(const State& state) const {
    for (int p = 0; p < processes_; ++p) {
      const Process& self = state.processes[p];
      if (self.phase == unborn || self.phase == over) continue;
      if (self.phase != serving || self.epoch != highest(state.epochs)) return false;
    }
    return true;
  }

  template <class Sink>
  void steps(const State& state, Sink&& sink) const {
    for (int p = 0; p < processes_; ++p) {
      auto step = [&](Kind kind, auto&& change, auto&& words) {
        State next = state;
        change(next, next.processes[p]);
        if (next.processes[p].phase == over) next.processes[p].target = 0;
        sink(next, kind,
             [&] { return fmt::format("process {} of run {}: {}", p + 1, run_of(p) ? 'B' : 'A', words()); });
      };
      generation_steps(state, p, step);
      epoch_steps(state, p, step);
      const uint8_t phase = state.processes[p].phase;
      if (phase == unborn || phase == over) continue;
      step(
          Kind::fault, [](State&, Process& self) { self.phase = over; }, [] { return "crashes"; });
    }
    storage_crashes(state, sink);
    damage(state, sink);
  }

 private:
  // How many processes have committed under epoch number + 1 since the folders were lost.
  int committed_under(const State& state, int number) const {
    int count = 0;
    for (int p = 0; p < processes_; ++p) {
      count += (state.committed >> p & 1) != 0 && state.processes[p].epoch == number + 1;
    }
    return count;
  }

  // Processes 0 and 1 are two incarnations of one run; process 2 belongs to another run.
  static int run_of(int process) { return process == 2 ? 1 : 0; }
  static uint8_t highest(const Entry (&entries)[kMaxNumber]) {
    for (int i = kMaxNumber; i > 0; --i) {
      if (entries[i - 1].owner != 0) return static_cast<uint8_t>(i);
    }
    return 0;
  }
  static void sync(Entry (&entries)[kMaxNumber]) {
    for (Entry& entry : entries) {
      if (entry.owner != 0) entry.durable = 1;
    }
  }
  static auto label(const char* words) {
    return [words] { return words; };
  }

  template <class Step>
  void generation_steps(const State& state, int p, Step& step) const {
    const Process& self = state.processes[p];
    const uint8_t run = static_cast<uint8_t>(run_of(p) + 1);
    if (self.phase == unborn) {
      step(
          Kind::calm, [](State&, Process& me) { me.phase = listing; }, label("starts"));
    } else if (self.phase == listing) {
      step(
          Kind::calm, [&](State& next, Process& me) { list_generations(next, me, run); },
          label("lists the generations"));
    } else if (self.phase == confirming) {
      auto confirm = [&](State& next, Process& me) {
        sync(next.generations);
        bool as_before = highest(next.generations) + 1 == me.target;
        for (const Entry& entry : next.generations) {
          as_before = as_before && (entry.owner != run || (flipped_is_anothers_ && entry.flipped));
        }
        me.phase = as_before || run_not_compared_ ? making_generation : listing;
      };
      step(Kind::calm, confirm, label("syncs the generations and lists them once more"));
    } else if (self.phase == making_generation) {
      const bool taken = state.generations[self.target - 1].owner != 0 && !generation_not_exclusive_;
      auto number = [&] { return fmt::format("generation {}", self.target); };
      if (taken) {
        step(
            Kind::calm, [](State&, Process& me) { me.phase = listing; },
            [&] { return "finds taken " + number(); });
        return;
      }
      for (const bool answer_lost : {false, true}) {
        auto link = [&](State& next, Process& me) {
          next.generations[me.target - 1] = {run, 0, 0};
          me.phase = answer_lost ? listing : generation_linked;
        };
        step(answer_lost ? Kind::fault : Kind::calm, link, [&] {
          return "links " + number() + (answer_lost ? ", but the answer is that the name was taken" : "");
        });
      }
    } else if (self.phase == generation_linked) {
      auto sync_it = [&](State& next, Process& me) {
        sync(next.generations);
        me.generation = me.target;
        me.phase = looking;
      };
      step(Kind::calm, sync_it, label("syncs the generations"));
    }
  }

  // Uses the generation of its run if it is the highest. Ends if a higher generation exists. Without a
  // generation of its run, it goes on to claim the next number.
  void list_generations(State& next, Process& me, uint8_t run) const {
    const uint8_t last = highest(next.generations);
    uint8_t own = 0;
    for (int i = 0; i < kMaxNumber && !run_not_compared_; ++i) {
      if (flipped_is_anothers_ && next.generations[i].flipped) continue;
      const uint8_t owner = next.generations[i].owner;
      if (owner == run || (joined_by_id_ && owner != 0)) own = static_cast<uint8_t>(i + 1);
    }
    if (own != 0 && own != last && !old_run_continues_) {
      me.phase = over;
    } else if (own != 0) {
      if (own != last) next.broken = old_run;
      sync(next.generations);
      me.generation = own;
      me.phase = looking;
    } else {
      me.target = static_cast<uint8_t>(last + 1);
      if (flipped_is_free_ && next.generations[last > 0 ? last - 1 : 0].flipped) {
        next.generations[last - 1] = {};
        me.target = last;
      }
      me.phase = me.target > kMaxNumber ? over : not_confirmed_ ? making_generation : confirming;
    }
  }

  // What a serving coordinator does before each commit. Modelled only after the folders were lost.
  template <class Step>
  void commit_steps(const State& state, int p, Step& step) const {
    if (!state.lost || (state.committed >> p & 1) != 0) return;
    auto commit = [&](State& next, Process& me) {
      Entry& generation = next.generations[me.generation - 1];
      Entry& epoch = next.epochs[me.epoch - 1];
      const auto run = static_cast<uint8_t>(run_of(p) + 1), own = static_cast<uint8_t>(p + 1);
      if (!commits_blindly_) {
        if (generation.owner == 0 || takes_back_) generation = {run, 1, 0};
        if (generation.owner == run && (epoch.owner == 0 || takes_back_)) epoch = {own, 1, 0};
      }
      const bool is_his = generation.owner == run && epoch.owner == own;
      if (!is_his && !commits_blindly_) {
        me.phase = over;
        return;
      }
      if (!is_his) next.broken = acts_on_anothers;
      next.committed = static_cast<uint8_t>(next.committed | 1 << p);
    };
    step(Kind::calm, commit, label("commits, or finds its number another's and ends"));
  }

  template <class Step>
  void epoch_steps(const State& state, int p, Step& step) const {
    const Process& self = state.processes[p];
    if (self.phase == looking) {
      look_steps(state, p, step);
    } else if (self.phase == making_epoch) {
      const bool taken = state.epochs[self.target - 1].owner != 0 && !epoch_not_exclusive_;
      if (taken) {
        step(
            Kind::calm, [](State&, Process& me) { me.phase = epoch_taken; }, label("finds the epoch taken"));
        return;
      }
      for (const bool answer_lost : {false, true}) {
        auto link = [&](State& next, Process& me) {
          if (me.superseded) next.broken = claims_again;
          next.epochs[me.target - 1] = {static_cast<uint8_t>(p + 1), 0, 0};
          me.phase = answer_lost ? epoch_taken : epoch_linked;
        };
        step(answer_lost ? Kind::fault : Kind::calm, link, [&] {
          return fmt::format("links epoch {}{}", self.target,
                             answer_lost ? ", but the answer is that the name was taken" : "");
        });
      }
    } else if (self.phase == epoch_taken) {
      auto read = [&](State& next, Process& me) {
        sync(next.epochs);
        if (next.epochs[me.target - 1].owner == p + 1 && !nonce_not_compared_) {
          me.epoch = me.target;
          me.phase = serving;
        } else {
          ++me.target;
          me.phase = me.target > kMaxNumber ? over : making_epoch;
        }
      };
      step(Kind::calm, read, label("syncs the epochs and reads whose that one is"));
    } else if (self.phase == epoch_linked) {
      auto serve = [&](State& next, Process& me) {
        if (!serve_unsynced_) sync(next.epochs);
        me.epoch = me.target;
        me.phase = serving;
      };
      step(Kind::calm, serve,
           label(serve_unsynced_ ? "serves, nothing synced" : "syncs the epochs and serves"));
    } else if (self.phase == serving) {
      commit_steps(state, p, step);
    }
    if (self.phase == serving && self.epoch < highest(state.epochs) && !not_noticed_) {
      auto notice = [&](State&, Process& me) {
        me.superseded = 1;
        me.phase = claims_again_ ? looking : over;
      };
      step(Kind::calm, notice, label("finds that a later epoch exists"));
    }
  }

  // The process calls the holder of the highest epoch. The holder may be dead, may be paused and not answer,
  // or may answer.
  template <class Step>
  void look_steps(const State& state, int p, Step& step) const {
    const uint8_t last = highest(state.epochs);
    auto claim = [&](State&, Process& me) {
      me.target = static_cast<uint8_t>(last + 1);
      me.phase = me.target > kMaxNumber ? over : making_epoch;
    };
    step(Kind::calm, claim, label("sees nobody in its way"));
    if (last == 0) return;
    const int holder = state.epochs[last - 1].owner - 1;
    if (run_of(holder) != run_of(p) && state.processes[holder].phase == serving)
      step(
          Kind::calm, [](State&, Process& me) { me.phase = over; },
          label("is answered by another run, and ends"));
  }

  template <class Sink>
  void damage(const State& state, Sink& sink) const {
    for (const bool of_epochs : {false, true}) {
      const uint8_t last = highest(of_epochs ? state.epochs : state.generations);
      if (state.flips || state.lost || last == 0) continue;
      State next = state;
      next.flips = 1;
      (of_epochs ? next.epochs : next.generations)[last - 1].flipped = 1;
      sink(next, Kind::fault,
           [&] { return fmt::format("a bit of {} {} flips", of_epochs ? "epoch" : "generation", last); });
    }
    const bool is_served = std::any_of(state.processes, state.processes + processes_,
                                       [](const Process& each) { return each.phase == serving; });
    if (state.lost || state.flips || !is_served) return;
    State next = state;
    next.lost = 1;
    for (int i = 0; i < kMaxNumber; ++i) next.generations[i] = next.epochs[i] = {};
    sink(next, Kind::fault, [] { return std::string("the folders of claims are removed"); });
  }

  template <class Sink>
  void storage_crashes(const State& state, Sink& sink) const {
    std::array<int, 2 * kMaxNumber> unsynced{};
    int count = 0;
    for (int i = 0; i < kMaxNumber; ++i) {
      if (state.generations[i].owner != 0 && !state.generations[i].durable) unsynced[count++] = i;
      if (state.epochs[i].owner != 0 && !state.epochs[i].durable) unsynced[count++] = kMaxNumber + i;
    }
    if (count == 0) return;
    for (int kept = 0; kept < 1 << count; ++kept) {
      State next = state;
      for (int i = 0; i < count; ++i) {
        const int at = unsynced[i];
        Entry& entry = at < kMaxNumber ? next.generations[at] : next.epochs[at - kMaxNumber];
        entry = (kept >> i & 1) ? Entry{entry.owner, 1, entry.flipped} : Entry{};
      }
      for (int p = 0; p < processes_; ++p) {
        Process& self = next.processes[p];
        const bool in_call =
            self.phase == generation_linked || self.phase == epoch_taken || self.phase == epoch_linked;
        if (in_call) self.phase = over, self.target = 0;
      }
      sink(next, Kind::fault, [&] {
        std::string words = "the storage crashes";
        for (int i = 0; i < count; ++i) {
          words +=
              fmt::format("; it {} {} {}", (kept >> i & 1) ? "kept" : "forgot",
                          unsynced[i] < kMaxNumber ? "generation" : "epoch", unsynced[i] % kMaxNumber + 1);
        }
        return words;
      });
    }
  }

  const int processes_;
  const bool epoch_not_exclusive_, serve_unsynced_, nonce_not_compared_, claims_again_, not_noticed_,
      generation_not_exclusive_, run_not_compared_, joined_by_id_, not_confirmed_, old_run_continues_,
      flipped_is_anothers_, flipped_is_free_, commits_blindly_, takes_back_;
};

}  // namespace

NamedModel claims_model(int processes) {
  auto check = [=](const std::string& mutation) {
    const Claims model(processes, mutation);
    return Checker<Claims>(model).run(kStatesMax);
  };
  return {"claims", fmt::format("{} processes of two runs", processes), kMutations, check};
}

}  // namespace shoal::model
