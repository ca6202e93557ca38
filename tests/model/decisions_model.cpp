// Decisions: coordinators and nodes race to decide an attempt and to report the decision; and a coordinator
// sweeps the files of an aborted attempt.
//
// What is modelled:
//   - The folder of an attempt holds one shard per node and the decision. An entry is visible as soon as it
//     is linked, but lasts only once the folder is synced.
//   - A crash of the storage forgets any subset of the entries that were not synced, and every call in
//     progress fails.
//   - Coordinators are incarnations without memory. A crash makes a coordinator idle; from there it acts as
//     its own successor or stays dead. A coordinator that pauses simply takes no step. So each coordinator is
//     also the zombie of an earlier epoch.
//   - Epochs and timers do not restrict coordinators in this model: any deadline may pass at any moment.
//   - Messages are never forgotten. This covers loss, delay, duplication and reordering.
//   - A creation that succeeded may report that the name is taken.
//   - Each node has two ranks. The first rank is always connected when the node learns the decision. The
//     second rank may be away, such as a rank that has not yet found the restarted node. It offers its part
//     again later, and the node answers from what it remembers.
//   - A node whose root refuses every write closes the attempt without a decision.
//
// With two attempts, neither of which affects the other, the model leaves out the last two points.
#include <fmt/format.h>

#include <array>
#include <tuple>

#include "tests/model/models.h"

namespace shoal::model {
namespace {

constexpr int kMaxAttempts = 2, kMaxNodes = 2, kMaxCoordinators = 3;

constexpr const char* kOneAnswer = "all answers agree with the existing decision";
constexpr const char* kReportedLasts = "what was reported lasts";
constexpr const char* kFilesStay = "of a committed attempt every shard is there";
constexpr const char* kWhole = "an existing decision is whole";

const std::vector<Mutation> kMutations = {
    {"create-not-exclusive", "a decision replaces the existing one", kOneAnswer},
    {"report-before-folder-sync", "the writer reports its decision before the folder is synced",
     kReportedLasts},
    {"answer-without-sync", "a node that reads another's decision reports it without syncing the folder",
     kReportedLasts},
    {"link-before-file-sync", "the decision gets its name before its bytes are synced", kWhole},
    {"winner-not-read", "a coordinator that finds the name taken reports what it meant to write", kOneAnswer},
    {"node-does-not-read-winner", "a node past its deadline reports an abort, even if another decision won",
     kOneAnswer},
    {"reports-not-awaited", "a manifest is published before every rank has reported", kFilesStay},
    {"report-before-sync", "a node reports a shard whose folder is not synced", kFilesStay},
    {"sweep-before-tombstone", "files are removed as soon as an abort is meant", kFilesStay},
    {"sweep-unsynced-tombstone", "files are removed under a tombstone that is not synced", kFilesStay},
    {"tombstone-taken-for-deletion", "a late rank receives 'committed' under any tombstone", kOneAnswer},
    {"nothing-taken-for-deletion", "a late rank receives 'committed' where no decision exists",
     kReportedLasts},
    {"no-node-deadline", "a node waits for a coordinator without a limit", kWayLost},
};

class Decisions {
 public:
  // unknown: only ever an answer to a client; it states nothing about the root
  enum Value : uint8_t { none, commit, abort, torn, unknown };
  enum Entry : uint8_t { absent, unsynced, durable };
  // The phase of one publisher of a decision. taken: the creation reported that the name is taken. holding:
  // it knows a decision, which may not be synced yet.
  enum Phase : uint8_t { idle, wanting, taken, holding, sweeping, dead };
  enum Progress : uint8_t { to_write, to_sync, reported };

  struct NodeState {
    uint8_t progress, shard, phase, held, known;
    uint8_t notified[2];  // what the node answered each rank
    bool is_notified() const { return notified[0] != none && notified[1] != none; }
  };
  struct AttemptState {
    // reported: bits (1 << value) that any coordinator ever reported
    uint8_t value, entry, bytes_lost_in_crash, message;
    NodeState nodes[kMaxNodes];
  };
  struct CoordinatorState {
    uint8_t attempt, phase, intent, held;
    auto key() const { return std::tuple(attempt, phase, intent, held); }
  };
  struct State {
    AttemptState attempts[kMaxAttempts];
    CoordinatorState coordinators[kMaxCoordinators];
  };

  Decisions(int coordinators, int attempts, int nodes, std::string mutation)
      : coordinators_(coordinators),
        attempts_(attempts),
        nodes_(nodes),
        not_exclusive_(mutation == "create-not-exclusive"),
        notify_unsynced_(mutation == "report-before-folder-sync"),
        answer_unsynced_(mutation == "answer-without-sync"),
        link_unsynced_(mutation == "link-before-file-sync"),
        winner_not_read_(mutation == "winner-not-read"),
        node_not_read_(mutation == "node-does-not-read-winner"),
        not_awaited_(mutation == "reports-not-awaited"),
        report_unsynced_(mutation == "report-before-sync"),
        sweep_early_(mutation == "sweep-before-tombstone"),
        sweep_unsynced_(mutation == "sweep-unsynced-tombstone"),
        any_tombstone_(mutation == "tombstone-taken-for-deletion"),
        nothing_found_(mutation == "nothing-taken-for-deletion"),
        no_deadline_(mutation == "no-node-deadline") {}

  State initial() const { return State{}; }

  State canonical(const State& state) const {
    State best = with_sorted_coordinators(state);
    auto consider = [&](const State& other) {
      const State sorted = with_sorted_coordinators(other);
      if (std::memcmp(&sorted, &best, sizeof(State)) < 0) best = sorted;
    };
    if (nodes_ == 2) consider(with_nodes_swapped(state));
    if (attempts_ == 2) {
      const State swapped = with_attempts_swapped(state);
      consider(swapped);
      if (nodes_ == 2) consider(with_nodes_swapped(swapped));
    }
    return best;
  }

  const char* violated(const State& state) const {
    for (int a = 0; a < attempts_; ++a) {
      const AttemptState& attempt = state.attempts[a];
      uint8_t answers = attempt.message;
      for (int n = 0; n < nodes_; ++n) {
        for (const uint8_t notified : attempt.nodes[n].notified) {
          if (notified == commit || notified == abort) answers |= bit(notified);
        }
      }
      if (attempt.value == torn) return kWhole;
      if (answers != 0 && attempt.value == none) return kReportedLasts;
      if (answers != 0 && answers != bit(attempt.value)) return kOneAnswer;
      for (int n = 0; n < nodes_; ++n) {
        if (attempt.value == commit && attempt.nodes[n].shard == absent) return kFilesStay;
      }
    }
    return nullptr;
  }

  bool settled(const State& state) const {
    for (int a = 0; a < attempts_; ++a) {
      for (int n = 0; n < nodes_; ++n) {
        if (!state.attempts[a].nodes[n].is_notified()) return false;
      }
    }
    return true;
  }

  template <class Sink>
  void steps(const State& state, Sink&& sink) const {
    for (int c = 0; c < coordinators_; ++c) coordinator_steps(state, c, sink);
    for (int a = 0; a < attempts_; ++a) {
      for (int n = 0; n < nodes_; ++n) node_steps(state, a, n, sink);
    }
    storage_crashes(state, sink);
  }

 private:
  static uint8_t bit(uint8_t value) { return static_cast<uint8_t>(1 << value); }
  static const char* name_of(uint8_t value) {
    switch (value) {
      case commit:
        return "manifest";
      case abort:
        return "tombstone";
      case unknown:
        return "unknown fate";
      default:
        return "nothing";
    }
  }

  State with_sorted_coordinators(State state) const {
    auto order = [&](int a, int b) {
      if (b < coordinators_ && state.coordinators[b].key() < state.coordinators[a].key())
        std::swap(state.coordinators[a], state.coordinators[b]);
    };
    order(0, 1);
    order(1, 2);
    order(0, 1);
    return state;
  }
  State with_nodes_swapped(State state) const {
    for (int a = 0; a < attempts_; ++a) std::swap(state.attempts[a].nodes[0], state.attempts[a].nodes[1]);
    return state;
  }
  State with_attempts_swapped(State state) const {
    std::swap(state.attempts[0], state.attempts[1]);
    for (int c = 0; c < coordinators_; ++c) {
      CoordinatorState& coordinator = state.coordinators[c];
      if (coordinator.phase != idle && coordinator.phase != dead) coordinator.attempt ^= 1;
    }
    return state;
  }

  void sync(AttemptState& attempt) const {
    if (attempt.entry == unsynced) attempt.entry = durable;
    for (int n = 0; n < nodes_; ++n) {
      if (attempt.nodes[n].shard == unsynced) attempt.nodes[n].shard = durable;
    }
  }

  // Returns whether the name was free. It always is under the mutation create-not-exclusive.
  bool link(AttemptState& attempt, uint8_t value) const {
    if (attempt.value != none && !not_exclusive_) return false;
    attempt.entry = attempt.value == none ? unsynced : durable;
    attempt.value = value;
    attempt.bytes_lost_in_crash = link_unsynced_;
    return true;
  }

  bool may_commit(const AttemptState& attempt) const {
    if (not_awaited_) return true;
    for (int n = 0; n < nodes_; ++n) {
      if (attempt.nodes[n].progress != reported || attempt.nodes[n].shard == absent) return false;
    }
    return true;
  }

  template <class Sink>
  void coordinator_steps(const State& state, int c, Sink& sink) const {
    const CoordinatorState& self = state.coordinators[c];
    if (self.phase == dead) return;
    if (self.phase == idle) {
      State next = state;
      next.coordinators[c].phase = dead;
      sink(next, Kind::fault, [&] { return fmt::format("coordinator {} is gone for good", c + 1); });
      for (int a = 0; a < attempts_; ++a) idle_coordinator_steps(state, c, a, sink);
      return;
    }
    const int a = self.attempt;
    auto step = [&](Kind kind, auto&& change, auto&& words) {
      State next = state;
      change(next.coordinators[c], next.attempts[a]);
      if (next.coordinators[c].phase == idle) next.coordinators[c] = {};
      sink(next, kind, [&] { return fmt::format("coordinator {}, attempt {}: {}", c + 1, a + 1, words()); });
    };
    step(
        Kind::fault, [](auto& me, auto&) { me.phase = idle; }, [] { return "crashes"; });
    if (self.phase == wanting) {
      publish_steps(state.attempts[a], self, step);
    } else if (self.phase == taken) {
      step(
          Kind::calm,
          [&](auto& me, auto& attempt) {
            me.phase = attempt.value == none ? wanting : holding;
            me.held = winner_not_read_ ? me.intent : attempt.value;
          },
          [&] { return winner_not_read_ ? "takes its own for the winner" : "reads the winner"; });
    } else if (self.phase == holding) {
      answer_steps(state.attempts[a], self, step);
    } else if (self.phase == sweeping) {
      sweep_steps(state.attempts[a], step);
      step(
          Kind::calm, [](auto& me, auto&) { me.phase = idle; }, [] { return "ends its sweep"; });
    }
  }

  template <class Sink>
  void idle_coordinator_steps(const State& state, int c, int a, Sink& sink) const {
    auto begin = [&](Phase phase, uint8_t intent, uint8_t held, const char* words) {
      State next = state;
      next.coordinators[c] = {static_cast<uint8_t>(a), phase, intent, held};
      sink(next, Kind::calm,
           [&] { return fmt::format("coordinator {}, attempt {}: {}", c + 1, a + 1, words); });
    };
    const AttemptState& attempt = state.attempts[a];
    if (attempt.value != none) return begin(holding, none, attempt.value, "reads the existing decision");
    if (may_commit(attempt)) begin(wanting, commit, none, "finds all reported and all files there");
    // A coordinator looks at nothing before it publishes a tombstone, so the intent and the link are one
    // step.
    if (sweep_early_) return begin(wanting, abort, none, "means to abort");
    for (const bool answer_lost : {false, true}) {
      State next = state;
      link(next.attempts[a], abort);
      next.coordinators[c] = {static_cast<uint8_t>(a), answer_lost ? taken : holding, abort,
                              answer_lost ? none : abort};
      sink(next, answer_lost ? Kind::fault : Kind::calm, [&] {
        return fmt::format("coordinator {}, attempt {}: links a tombstone{}", c + 1, a + 1,
                           answer_lost ? ", but the answer is that the name was taken" : "");
      });
    }
  }

  template <class Step>
  void publish_steps(const AttemptState& attempt, const CoordinatorState& self, Step& step) const {
    if (sweep_early_ && self.intent == abort) sweep_steps(attempt, step);
    if (attempt.value != none && !not_exclusive_) {
      step(
          Kind::calm, [](auto& me, auto&) { me.phase = taken; }, [] { return "finds the name taken"; });
      return;
    }
    for (const bool answer_lost : {false, true}) {
      step(
          answer_lost ? Kind::fault : Kind::calm,
          [&](auto& me, auto& decided) {
            link(decided, me.intent);
            me.phase = answer_lost ? taken : holding;
            me.held = answer_lost ? uint8_t{none} : me.intent;
          },
          [&] {
            return fmt::format("links its {}{}", name_of(self.intent),
                               answer_lost ? ", but the answer is that the name was taken" : "");
          });
    }
  }

  template <class Step>
  void answer_steps(const AttemptState&, const CoordinatorState& self, Step& step) const {
    const bool is_own = self.intent == self.held;
    auto report = [&](auto& me, auto& attempt) {
      attempt.message |= bit(me.held);
      me = {me.attempt, static_cast<uint8_t>(me.held == abort ? sweeping : idle), none, none};
    };
    if ((notify_unsynced_ && is_own) || (answer_unsynced_ && !is_own)) {
      step(Kind::calm, report,
           [&] { return fmt::format("reports the {}, nothing synced", name_of(self.held)); });
      return;
    }
    if (sweep_unsynced_ && self.held == abort) {
      step(
          Kind::calm,
          [](auto& me, auto&) {
            me = {me.attempt, sweeping, none, none};
          },
          [] { return "begins to sweep under a tombstone that may not last"; });
    }
    step(
        Kind::calm,
        [&](auto& me, auto& attempt) {
          sync(attempt);
          report(me, attempt);
        },
        [&] { return fmt::format("syncs the folder and reports the {}", name_of(self.held)); });
  }

  template <class Step>
  void sweep_steps(const AttemptState& attempt, Step& step) const {
    for (int n = 0; n < nodes_; ++n) {
      if (attempt.nodes[n].shard == absent) continue;
      step(
          Kind::calm, [&](auto&, auto& swept) { swept.nodes[n].shard = absent; },
          [&] { return fmt::format("removes the shard of node {}", n + 1); });
    }
  }

  template <class Sink>
  void node_steps(const State& state, int a, int n, Sink& sink) const {
    const AttemptState& attempt = state.attempts[a];
    const NodeState& self = attempt.nodes[n];
    auto step = [&](Kind kind, auto&& change, auto&& words) {
      State next = state;
      change(next.attempts[a].nodes[n], next.attempts[a]);
      sink(next, kind, [&] { return fmt::format("node {}, attempt {}: {}", n + 1, a + 1, words()); });
    };
    auto label = [](const char* words) { return [words] { return words; }; };
    if (self.progress == to_write) {
      auto write = [](auto& me, auto&) {
        me.progress = to_sync;
        if (me.shard == absent) me.shard = unsynced;
      };
      step(Kind::calm, write, label("links its shard"));
    } else if (self.progress == to_sync) {
      auto sync_it = [&](auto& me, auto& in) {
        me.progress = reported;
        if (!report_unsynced_) sync(in);
      };
      step(Kind::calm, sync_it,
           label(report_unsynced_ ? "reports, nothing synced" : "syncs the folder and reports"));
    }
    if (self.is_notified()) return;
    // A killed node restarts. Its ranks offer again the parts whose decision they have not received.
    auto restart = [](auto& me, auto&) {
      me = {to_write, me.shard, idle, none, none, {me.notified[0], me.notified[1]}};
    };
    if (self.progress != to_write || self.phase != idle || self.known != none)
      step(Kind::fault, restart, label("crashes and restarts"));
    if (self.known != none) return late_rank_steps(attempt, self, step);
    node_decision_steps(attempt, self, step);
  }

  // The second rank offers its part of the attempt again after the node has closed the attempt.
  template <class Step>
  void late_rank_steps(const AttemptState& attempt, const NodeState& self, Step& step) const {
    uint8_t answer = self.known;
    const bool reads = self.known != abort || any_tombstone_;
    if (reads && attempt.value != none) answer = any_tombstone_ ? uint8_t{commit} : attempt.value;
    if (nothing_found_ && attempt.value == none) answer = commit;
    auto report = [&](auto& me, auto& in) {
      if (reads) sync(in);
      me.notified[1] = answer;
    };
    step(Kind::calm, report, [&] { return fmt::format("reports the {} to the late rank", name_of(answer)); });
  }

  template <class Step>
  void node_decision_steps(const AttemptState& attempt, const NodeState& self, Step& step) const {
    auto label = [](const char* words) { return [words] { return words; }; };
    // change(me, attempt) returns the decision that the node then knows.
    auto settle = [&](Kind kind, auto&& change, auto&& words) {
      for (const bool is_second_here : {true, false}) {
        if (!is_second_here && attempts_ != 1) continue;
        step(
            kind,
            [&](auto& me, auto& in) {
              const uint8_t value = change(me, in);
              me.phase = idle;
              me.held = none;
              me.known = value;
              if (me.notified[0] == none) me.notified[0] = value;
              if (is_second_here) me.notified[1] = value;
            },
            [&] { return fmt::format("{}{}", words(), is_second_here ? "" : "; its second rank is away"); });
      }
    };
    for (const uint8_t value : {commit, abort}) {
      if (!(attempt.message & bit(value))) continue;
      settle(
          Kind::calm, [&](auto&, auto&) { return value; },
          [&] { return fmt::format("receives a {}", name_of(value)); });
    }
    if (self.phase == idle && !no_deadline_) {
      if (attempts_ == 1)
        settle(
            Kind::fault, [](auto&, auto&) { return uint8_t{unknown}; },
            label("gives up waiting, and can publish nothing"));
      if (attempt.value != none && !not_exclusive_) {
        auto find = [](auto& me, auto&) { me.phase = taken; };
        return step(Kind::calm, find, label("gives up waiting, and finds the name taken"));
      }
      auto publish = [&](auto& me, auto& decided) {
        link(decided, abort);
        me.phase = holding;
        me.held = abort;
      };
      step(Kind::calm, publish, label("gives up waiting, and links its tombstone"));
    } else if (self.phase == taken) {
      if (node_not_read_) {
        auto report = [&](auto&, auto& in) {
          sync(in);
          return uint8_t{abort};
        };
        return settle(Kind::calm, report, label("reports an abort to its clients"));
      }
      auto read = [&](auto& me, auto& in) {
        me.phase = in.value == none ? idle : holding;
        me.held = in.value;
      };
      step(Kind::calm, read, label("reads the winner"));
    } else if (self.phase == holding) {
      const bool skip_sync = answer_unsynced_ && self.held == commit;
      auto answer = [&](auto& me, auto& in) {
        if (!skip_sync) sync(in);
        return me.held;
      };
      settle(Kind::calm, answer, [&] {
        return fmt::format("{} and reports the {} to its clients",
                           skip_sync ? "does not sync the folder" : "syncs the folder", name_of(self.held));
      });
    }
  }

  // The storage forgets any subset of what was not synced; the rest lasts. Calls in progress fail, and every
  // process that survives repeats them.
  template <class Sink>
  void storage_crashes(const State& state, Sink& sink) const {
    // {attempt, -1 for the decision or the node of a shard}
    std::array<std::pair<int, int>, kMaxAttempts*(1 + kMaxNodes)> unsynced_entries;
    int count = 0;
    for (int a = 0; a < attempts_; ++a) {
      if (state.attempts[a].entry == unsynced) unsynced_entries[count++] = {a, -1};
      for (int n = 0; n < nodes_; ++n) {
        if (state.attempts[a].nodes[n].shard == unsynced) unsynced_entries[count++] = {a, n};
      }
    }
    if (count == 0) return;
    for (int kept = 0; kept < 1 << count; ++kept) {
      State next = state;
      for (int i = 0; i < count; ++i) {
        auto [a, n] = unsynced_entries[i];
        after_crash(next.attempts[a], n, (kept >> i & 1) != 0);
      }
      fail_calls(next);
      sink(next, Kind::fault, [&] {
        std::string words = "the storage crashes";
        for (int i = 0; i < count; ++i) {
          auto [a, n] = unsynced_entries[i];
          words += fmt::format("; it {} {} of attempt {}", (kept >> i & 1) ? "kept" : "forgot",
                               n < 0 ? std::string("the decision") : fmt::format("shard {}", n + 1), a + 1);
        }
        return words;
      });
    }
  }

  static void after_crash(AttemptState& attempt, int node, bool kept) {
    if (node >= 0) {
      attempt.nodes[node].shard = kept ? durable : absent;
      return;
    }
    attempt.entry = kept ? durable : absent;
    if (!kept) attempt.value = none;
    if (kept && attempt.bytes_lost_in_crash) attempt.value = torn;
    attempt.bytes_lost_in_crash = 0;
  }

  void fail_calls(State& state) const {
    for (int c = 0; c < coordinators_; ++c) {
      CoordinatorState& self = state.coordinators[c];
      if (self.phase != taken && self.phase != holding) continue;
      if (self.intent != commit) {
        self = {};
      } else {
        self.phase = wanting;
        self.held = none;
      }
    }
    for (int a = 0; a < attempts_; ++a) {
      for (int n = 0; n < nodes_; ++n) {
        NodeState& self = state.attempts[a].nodes[n];
        self.phase = idle;
        self.held = none;
        if (self.progress == to_sync) self.progress = to_write;
      }
    }
  }

  const int coordinators_, attempts_, nodes_;
  const bool not_exclusive_, notify_unsynced_, answer_unsynced_, link_unsynced_, winner_not_read_,
      node_not_read_, not_awaited_, report_unsynced_, sweep_early_, sweep_unsynced_, any_tombstone_,
      nothing_found_, no_deadline_;
};

}  // namespace

NamedModel decisions_model(int coordinators, int attempts, int nodes) {
  auto check = [=](const std::string& mutation) {
    const Decisions model(coordinators, attempts, nodes, mutation);
    return Checker<Decisions>(model).run(kStatesMax);
  };
  return {fmt::format("decisions-{}a{}n", attempts, nodes),
          fmt::format("{} coordinators, {} attempt(s), {} node(s)", coordinators, attempts, nodes),
          kMutations, check};
}

}  // namespace shoal::model
