// Completion: an attempt whose coordinator left it undecided, or whose manifest was removed, and the
// processes that find it later (finders). A finder commits the attempt if the root proves it complete, and
// aborts it otherwise.
//
// What is modelled:
//   - Two nodes write one shard each. The second node may write by another plan, because its layout has
//     changed.
//   - Or the roster in the root gives the second node no shard. Then it writes a record of what it has
//     staged. Or it stages more than this roster lists, and waits for another roster. That roster may never
//     arrive. If it arrives, it gives the node no shard either, and the record follows that roster.
//   - A shard or record is a partial file until it gets its name. Its name lasts once the folder is synced;
//     then the node reports it.
//   - A node may report that its write failed, whatever the state of the file.
//   - The coordinator commits an attempt that every node has reported. It aborts without looking at the root
//     if a node reported a failure, or if another run has the root. If it gives up on an attempt without all
//     reports, it follows the rules of a finder; so does a node that gives up on its own.
//   - Two finders look at the folder, decide what it proves, and create the decision exclusively. They may
//     look at any moment, also while the coordinator and the nodes live.
//   - Nodes and coordinators that pause simply take no step, so each of them is also a zombie.
//   - Once no process acts, the manifest may be removed once.
//   - A crash of the storage forgets any subset of what was not synced. A creation that succeeded may report
//     that the name is taken.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "tests/model/models.h"

namespace shoal::model {
namespace {

constexpr int kNodes = 2, kActors = 3;  // actor 0 is the coordinator, the others are finders

constexpr const char* kOneAnswer = "all answers agree with the existing decision";
constexpr const char* kReportedLasts = "what was reported lasts";
constexpr const char* kFilesStay = "of a committed attempt every shard is there";
constexpr const char* kFilesWhole = "of a committed attempt every shard is whole";
constexpr const char* kOnePlan = "the shards of a committed attempt are those of one plan";
constexpr const char* kStaged = "what was staged is in what is committed";
constexpr const char* kKept = "nobody aborts what the root proves complete when he looks";

const std::vector<Mutation> kMutations = {
    {"commit-without-a-shard", "a finder commits though a shard is missing", kFilesStay},
    {"commit-of-two-plans", "a finder does not compare the shards with a plan", kOnePlan},
    {"commit-a-partial-file", "a finder takes a file that is still being written for a shard", kFilesWhole},
    {"proof-before-sync", "a finder lists the folder without syncing it first", kFilesStay},
    {"delete-before-deciding", "a finder removes files before its tombstone exists", kFilesStay},
    {"completion-not-exclusive", "a finder's decision replaces the existing one", kOneAnswer},
    {"finder-does-not-read-winner", "a finder that finds the name taken reports what it meant to write",
     kOneAnswer},
    {"abort-what-is-proven", "a finder aborts an attempt that is complete", kKept},
    {"give-up-without-a-look", "a coordinator gives up what was not reported, whatever lies in the root",
     kKept},
    {"absent-rank-taken-for-done", "a finder takes a rank to which the roster gives no shard for staged",
     kStaged},
    {"record-not-compared", "a finder does not compare the record of such a rank with the roster", kStaged},
    {"report-before-record", "a node reports such a rank before its record is durable", kOneAnswer},
};

class Completion {
 public:
  enum Value : uint8_t { none, commit, abort };
  enum Entry : uint8_t { absent, unsynced, durable };
  enum Shard : uint8_t { no_shard, partial, named, lasting };
  enum Progress : uint8_t { to_write, writing, linked, reported, failed, gone, waits };
  enum Job : uint8_t { not_begun, all_write, second_writes_nothing };  // by the roster in the root
  enum Phase : uint8_t { idle, wanting, taken, holding, sweeping, dead };

  struct NodeState {
    uint8_t progress, shard, plan;
  };
  struct Actor {
    uint8_t phase, intent, held;
    auto key() const { return std::tuple(phase, intent, held); }
  };
  struct State {
    uint8_t value, entry, message, removed, thrown_away, job, staged_more;
    NodeState nodes[kNodes];
    Actor actors[kActors];
  };

  explicit Completion(const std::string& mutation)
      : without_shard_(mutation == "commit-without-a-shard"),
        two_plans_(mutation == "commit-of-two-plans"),
        partial_counts_(mutation == "commit-a-partial-file"),
        unsynced_proof_(mutation == "proof-before-sync"),
        delete_early_(mutation == "delete-before-deciding"),
        not_exclusive_(mutation == "completion-not-exclusive"),
        winner_not_read_(mutation == "finder-does-not-read-winner"),
        aborts_proven_(mutation == "abort-what-is-proven"),
        gives_up_blindly_(mutation == "give-up-without-a-look"),
        absent_is_done_(mutation == "absent-rank-taken-for-done"),
        record_not_compared_(mutation == "record-not-compared"),
        reports_before_record_(mutation == "report-before-record") {}

  State initial() const { return State{}; }
  State canonical(State state) const {
    if (state.actors[2].key() < state.actors[1].key()) std::swap(state.actors[1], state.actors[2]);
    return state;
  }

  const char* violated(const State& state) const {
    if (state.thrown_away) return kKept;
    if (state.message != 0 && state.value == none && !state.removed) return kReportedLasts;
    if (state.message != 0 && state.value != none && state.message != bit(state.value)) return kOneAnswer;
    if (state.value != commit) return nullptr;
    if (state.staged_more) return kStaged;
    for (int n = 0; n < writers(state); ++n) {
      if (state.nodes[n].shard == no_shard) return kFilesStay;
      if (state.nodes[n].shard == partial) return kFilesWhole;
    }
    return state.nodes[0].plan == state.nodes[1].plan ? nullptr : kOnePlan;
  }

  bool settled(const State& state) const {
    if (state.value == none || state.entry != durable) return false;
    return std::all_of(state.actors, state.actors + kActors,
                       [](const Actor& actor) { return actor.phase == idle || actor.phase == dead; });
  }

  template <class Sink>
  void steps(const State& state, Sink&& sink) const {
    if (state.job == not_begun) return begin(state, sink);
    for (int n = 0; n < kNodes; ++n) node_steps(state, n, sink);
    for (int a = 0; a < kActors; ++a) actor_steps(state, a, sink);
    removal(state, sink);
    storage_crashes(state, sink);
  }

 private:
  static uint8_t bit(uint8_t value) { return static_cast<uint8_t>(1 << value); }
  static std::string name_of(int actor) {
    return actor == 0 ? "the coordinator" : fmt::format("finder {}", actor);
  }
  static int writers(const State& state) { return state.job == second_writes_nothing ? 1 : kNodes; }

  template <class Sink>
  static void begin(const State& state, Sink& sink) {
    for (const uint8_t job : {all_write, second_writes_nothing}) {
      State next = state;
      next.job = job;
      sink(next, Kind::calm,
           [job] { return job == all_write ? "both nodes write" : "the roster gives node 2 no shard"; });
    }
  }
  static void sync(State& state) {
    if (state.entry == unsynced) state.entry = durable;
    for (NodeState& node : state.nodes) {
      if (node.shard == named) node.shard = lasting;
    }
  }

  template <class Sink>
  void node_steps(const State& state, int n, Sink& sink) const {
    const NodeState& self = state.nodes[n];
    auto step = [&](Kind kind, auto&& change, const std::string& words) {
      State next = state;
      change(next, next.nodes[n]);
      sink(next, kind, [&] { return fmt::format("node {} {}", n + 1, words); });
    };
    if (self.progress == to_write && n == writers(state)) {
      auto begin = [](State&, NodeState& me) { me = {writing, static_cast<uint8_t>(partial), 0}; };
      step(Kind::calm, begin, "stages what the roster assigns, and begins to write its record");
      auto stage_more = [](State& next, NodeState& me) {
        me.progress = waits;
        next.staged_more = 1;
      };
      step(Kind::calm, stage_more, "stages more than the roster assigns, and waits for another one");
    } else if (self.progress == waits) {
      auto begin = [](State&, NodeState& me) { me = {writing, static_cast<uint8_t>(partial), 1}; };
      step(Kind::calm, begin, "receives another roster, and begins to write its record by that");
    } else if (self.progress == to_write) {
      for (uint8_t plan = 0; plan <= n; ++plan) {
        auto begin = [&](State&, NodeState& me) { me = {writing, static_cast<uint8_t>(partial), plan}; };
        step(Kind::calm, begin, fmt::format("begins to write its shard by plan {}", plan + 1));
      }
    } else if (self.progress == writing) {
      auto link = [](State&, NodeState& me) {
        me.progress = me.shard == partial ? linked : gone;  // gone: a finder has swept the file meanwhile
        if (me.shard == partial) me.shard = named;
      };
      step(Kind::calm, link, n < writers(state) ? "gives its shard its name" : "gives its record its name");
    } else if (self.progress == linked) {
      auto report = [](State& next, NodeState& me) {
        sync(next);
        me.progress = reported;
      };
      step(Kind::calm, report, "syncs the folder and reports");
    }
    if (reports_before_record_ && n == writers(state) && self.progress == writing) {
      step(
          Kind::calm, [](State&, NodeState& me) { me.progress = reported; }, "reports without its record");
    }
    if (self.progress == writing || self.progress == linked) {
      step(
          Kind::fault, [](State&, NodeState& me) { me.progress = failed; }, "reports that its write failed");
    }
    if (self.progress != reported && self.progress != failed && self.progress != gone) {
      step(
          Kind::fault, [](State&, NodeState& me) { me.progress = gone; }, "is gone for good");
    }
  }

  // The coordinator commits by the reports that it has received; any finder commits by the files in the root.
  bool has_all_reports(const State& state) const {
    for (int n = 0; n < kNodes; ++n) {
      if (state.nodes[n].progress != reported) return false;
      if (n < writers(state) && state.nodes[n].shard == no_shard) return false;
    }
    return state.nodes[0].plan == state.nodes[1].plan;
  }
  bool proves(const State& state) const {
    for (int n = 0; n < kNodes; ++n) {
      const uint8_t shard = state.nodes[n].shard;
      if (without_shard_ && n == 1) continue;
      if (absent_is_done_ && n == writers(state) && shard == no_shard) continue;
      if (shard == no_shard || (shard == partial && !partial_counts_)) return false;
    }
    if (record_not_compared_ && state.job == second_writes_nothing) return true;
    return two_plans_ || without_shard_ || state.nodes[0].plan == state.nodes[1].plan;
  }
  static bool has_failed(const State& state) {
    return std::any_of(state.nodes, state.nodes + kNodes,
                       [](const NodeState& node) { return node.progress == failed; });
  }

  template <class Sink>
  void actor_steps(const State& state, int a, Sink& sink) const {
    const Actor& self = state.actors[a];
    if (self.phase == dead) return;
    auto step = [&](Kind kind, auto&& change, const std::string& words) {
      State next = state;
      change(next, next.actors[a]);
      if (next.actors[a].phase == idle || next.actors[a].phase == dead)
        next.actors[a] = {next.actors[a].phase, none, none};
      sink(next, kind, [&] { return name_of(a) + " " + words; });
    };
    // After a finder that crashes, another one may begin.
    const auto end = static_cast<uint8_t>(a == 0 ? dead : idle);
    if (a == 0 || self.phase != idle) {
      step(
          Kind::fault, [end](State&, Actor& me) { me.phase = end; }, "crashes");
    }
    switch (self.phase) {
      case idle:
        return look_steps(state, a, step);
      case wanting:
        return link_steps(state, a, step);
      case taken:
        return step(
            Kind::calm,
            [&](State& next, Actor& me) {
              me.held = winner_not_read_ && a != 0 ? me.intent : next.value;
              me.phase = next.value == none ? idle : holding;
            },
            "reads the winner");
      case holding:
        return step(
            Kind::calm,
            [](State& next, Actor& me) {
              sync(next);
              next.message |= bit(me.held);
              me.phase = me.held == abort ? sweeping : idle;
            },
            "syncs the folder and reports the decision");
      default:
        sweep_steps(state, step);
        return step(
            Kind::calm, [](State&, Actor& me) { me.phase = idle; }, "ends its sweep");
    }
  }

  template <class Step>
  void look_steps(const State& state, int a, Step& step) const {
    if (state.value != none) {
      const bool is_known = state.entry == durable && (state.message & bit(state.value)) != 0;
      if (is_known) return;
      return step(
          Kind::calm,
          [](State& next, Actor& me) {
            me = {holding, none, next.value};
          },
          "reads the existing decision");
    }
    const bool is_finder = a != 0;
    auto reject = [](State&, Actor& me) { me = {wanting, abort, none}; };
    if (!is_finder && has_failed(state))
      return step(Kind::calm, reject, "rejects what a node reports as failed");
    if (!is_finder) step(Kind::fault, reject, "aborts, since another run has the root");
    const bool is_notified = !is_finder && has_all_reports(state);
    auto look = [&](State& next, Actor& me) {
      if (!is_notified && !unsynced_proof_) sync(next);
      const bool is_complete = is_notified || proves(next);
      const bool throws_away =
          is_complete && !is_notified && (is_finder ? aborts_proven_ : gives_up_blindly_);
      me.phase = wanting;
      me.intent = is_complete && !throws_away ? commit : abort;
      if (throws_away) next.thrown_away = 1;
    };
    step(Kind::calm, look,
         is_notified ? "has all reports"
                     : fmt::format("looks at what the root proves{}",
                                   is_finder ? "" : ", giving up what was not reported"));
  }

  template <class Step>
  void link_steps(const State& state, int a, Step& step) const {
    const Actor& self = state.actors[a];
    const bool is_finder = a != 0;
    if (is_finder && delete_early_ && self.intent == abort) sweep_steps(state, step);
    const bool replaces = is_finder && not_exclusive_;
    if (state.value != none && !replaces) {
      return step(
          Kind::calm, [](State&, Actor& me) { me.phase = taken; }, "finds the name taken");
    }
    for (const bool answer_lost : {false, true}) {
      auto link = [&](State& next, Actor& me) {
        next.entry = next.value == none ? unsynced : durable;
        next.value = me.intent;
        me.phase = answer_lost ? taken : holding;
        me.held = answer_lost ? uint8_t{none} : me.intent;
      };
      step(answer_lost ? Kind::fault : Kind::calm, link,
           fmt::format("links its {}{}", self.intent == commit ? "manifest" : "tombstone",
                       answer_lost ? ", but the answer is that the name was taken" : ""));
    }
  }

  template <class Step>
  void sweep_steps(const State& state, Step& step) const {
    for (int n = 0; n < kNodes; ++n) {
      if (state.nodes[n].shard == no_shard) continue;
      step(
          Kind::calm, [n](State& next, Actor&) { next.nodes[n].shard = no_shard; },
          fmt::format("removes the shard of node {}", n + 1));
    }
  }

  // A person or the file system removes the manifest: after the job has ended, and while no finder is active.
  template <class Sink>
  void removal(const State& state, Sink& sink) const {
    if (state.removed || state.value != commit || state.entry != durable) return;
    const bool is_over =
        state.actors[0].phase == dead && state.actors[1].phase == idle && state.actors[2].phase == idle;
    if (!is_over) return;
    State next = state;
    next.value = none;
    next.entry = absent;
    next.removed = 1;
    sink(next, Kind::fault, [] { return std::string("the manifest is removed"); });
  }

  template <class Sink>
  void storage_crashes(const State& state, Sink& sink) const {
    std::array<int, 1 + kNodes> entries{};  // -1: the decision; otherwise the index of a node
    int count = 0;
    if (state.entry == unsynced) entries[count++] = -1;
    for (int n = 0; n < kNodes; ++n) {
      if (state.nodes[n].shard == named) entries[count++] = n;
    }
    if (count == 0) return;
    for (int kept = 0; kept < 1 << count; ++kept) {
      State next = state;
      for (int i = 0; i < count; ++i) after_crash(next, entries[i], (kept >> i & 1) != 0);
      // Storage calls in progress fail; what an actor has already seen, it still knows.
      for (Actor& actor : next.actors) {
        if (actor.phase == taken || actor.phase == holding) actor = {};
      }
      for (NodeState& node : next.nodes) {
        if (node.progress == linked) node.progress = gone;
      }
      sink(next, Kind::fault, [&] {
        std::string words = "the storage crashes";
        for (int i = 0; i < count; ++i) {
          words += fmt::format("; it {} {}", (kept >> i & 1) ? "kept" : "forgot",
                               entries[i] < 0 ? std::string("the decision")
                                              : fmt::format("the shard of node {}", entries[i] + 1));
        }
        return words;
      });
    }
  }
  static void after_crash(State& state, int entry, bool kept) {
    if (entry >= 0) {
      state.nodes[entry].shard = kept ? lasting : no_shard;
      return;
    }
    state.entry = kept ? durable : absent;
    if (!kept) state.value = none;
  }

  const bool without_shard_, two_plans_, partial_counts_, unsynced_proof_, delete_early_, not_exclusive_,
      winner_not_read_, aborts_proven_, gives_up_blindly_, absent_is_done_, record_not_compared_,
      reports_before_record_;
};

}  // namespace

NamedModel completion_model() {
  auto check = [](const std::string& mutation) {
    const Completion model(mutation);
    return Checker<Completion>(model).run(kStatesMax);
  };
  return {"completion", "a coordinator, 2 nodes and 2 finders", kMutations, check};
}

}  // namespace shoal::model
