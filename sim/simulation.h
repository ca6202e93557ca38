// Simulation: runs one scenario on one profile, from the start of its nodes to the decision of its last save.
// Read this header first: simulate() is the entry point of sim/.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "shoal/status.h"
#include "sim/cluster/counted_loads.h"
#include "sim/cluster/counted_trainers.h"
#include "sim/failures/oracles.h"
#include "sim/jobs/scenario.h"
#include "sim/models/profile.h"
#include "sim/reports/path_counts.h"
#include "sim/reports/trace.h"

namespace shoal::sim {

// The spread of a time over the ranks, in nanoseconds: minimum, median, 99th percentile and maximum. Each
// value is the time of one rank. Negative times belong to ranks that never reached that point; they do not
// count.
struct Spread {
  actors::TimeNs least = 0, median = 0, p99 = 0, greatest = 0;
  std::vector<actors::TimeNs> further;  // quantiles, by kFurtherPermille
  // Number of ranks in each of kHistogramBars equal intervals from least to greatest.
  std::vector<uint64_t> histogram;
};
inline constexpr uint32_t kFurtherPermille[] = {10, 50, 100, 250, 500, 750, 900, 950, 990, 999};
inline constexpr size_t kHistogramBars = 20;
Spread spread_of(std::vector<actors::TimeNs> times);

// Costs from the beginning of a save to the beginning of the next one. `joining` has the costs before the
// first save.
struct PhaseCosts {
  CoordinatorCounts coordinator;
  CoordinatorLoad coordinator_peaks;
  StorageCounts storage;
  uint64_t record_bytes = 0;  // bytes of decisions, rosters and rank manifests
};
struct SaveReport {
  uint32_t generation = 0;   // of the run that saved
  uint32_t step = 0;         // its number within that run, from 1
  actors::TimeNs began = 0;  // on the clock of the simulation
  Spread plan_received;      // until a rank knows what to write
  Spread blocked;            // until save() returns: the rank has staged everything
  Spread written;            // until the rank's last byte is durable
  Spread committed;          // until the rank receives the decision
  uint64_t bytes_staged = 0;
  uint32_t notified_ranks = 0;  // ranks that received the decision
  uint32_t aborted_ranks = 0;   // those of notified_ranks that received an abort
  std::string cause;
  PhaseCosts costs;

  bool is_committed() const { return notified_ranks != 0 && aborted_ranks == 0; }
  // "undecided": no rank received a decision, because all ranks had died or the run had ended.
  const char* outcome() const {
    return aborted_ranks != 0 ? "aborted" : notified_ranks != 0 ? "committed" : "undecided";
  }
};
// The job starts again, as another generation, and all ranks load the newest checkpoint at once.
struct LoadReport {
  uint32_t ranks = 0, nodes = 0;
  MeshShape mesh;
  Spread found;               // from the start of the nodes until a rank knows what to read
  Spread loaded;              // until the rank's bytes are in their destination
  uint64_t bytes_wanted = 0;  // of all ranks together
  // Through the windows of all ranks: the whole digest blocks that contain wanted bytes.
  uint64_t bytes_passed = 0;
  uint64_t bytes_between = 0;  // bytes that hosts sent each other, if the load is shared
  PhaseCosts costs;
};
// An attempt of an earlier run that is newer than the checkpoint that a later run has loaded.
struct NewerAttempt {
  AttemptKey key;
  enum class State : uint8_t {
    unwritten,  // no file of it had reached the root
    undecided,  // still, when the later run had loaded
    aborted,
    damaged,
    deleted,
  } state = State::aborted;
  bool was_undecided = false;  // when the later run began
  std::string cause;           // of its abort
};
std::string_view state_name(NewerAttempt::State state);

// A failure has ended the job, and another run of it has begun, which loads before it trains. Points in time
// are on the clock of the simulation; a negative one was not reached, because the run ended before.
struct RestartReport {
  Failure failure;
  actors::TimeNs failed = 0;  // when the failure began
  actors::TimeNs ended = 0;   // the launcher has killed the earlier run
  actors::TimeNs began = 0;   // nodes and trainers of this run start
  uint32_t generation = 0, ranks = 0, nodes = 0;
  MeshShape mesh;
  // The coordinator has claimed generation and epoch; all nodes have opened the root and are connected, and
  // their roles start. Negative too after `job-restarts`, which does not model this.
  actors::TimeNs claimed = -1, connected = -1;
  actors::TimeNs chosen = -1;  // the first node knew which checkpoint all load, and requested its pin
  // From `began` on. A run that was killed before it had loaded has the times of the ranks that came so far.
  Spread found;                   // until a rank knows what to read
  Spread loaded;                  // until the rank's bytes are in their destination
  actors::TimeNs resumed = -1;    // all ranks have loaded, and train
  actors::TimeNs saved = -1;      // all ranks were notified of the first commit of this run
  actors::TimeNs lost_steps = 0;  // the training of the earlier run that the loaded checkpoint does not hold
  std::optional<AttemptKey> checkpoint;  // that is loaded; none: there was none, or the run ended before
  std::vector<NewerAttempt> newer;       // why it is not a newer one; ascending
  uint64_t bytes_wanted = 0, bytes_passed = 0, bytes_between = 0;  // as in LoadReport
  PhaseCosts costs;                                                // until its first save begins
};
struct SimulationReport {
  Scenario scenario;
  MeshShape mesh;
  uint32_t nodes = 0;
  uint32_t relays = 0;
  uint32_t layouts = 0;
  bool layouts_are_stated = false;  // a manifest states the layouts of all ranks
  uint64_t bytes_stored = 0;        // bytes in files; 0 unless the payload is full
  uint64_t bytes_checked = 0;       // bytes of these that loads read back and that matched what was staged
  uint64_t parameters = 0;
  PhaseCosts joining;
  std::vector<SaveReport> saves;
  std::vector<LoadReport> loads;
  std::vector<RestartReport> restarts;
  uint64_t reads = 0, failed_reads = 0;  // of trainers, between their saves
  std::vector<CoordinatorSample> coordinator_over_time;
  actors::TimeNs ended = 0;  // virtual time at which the job that saves ended
  uint64_t events = 0;       // events that were delivered to roles
  uint64_t steps = 0;        // steps of virtual time
  uint64_t trace_hash = 0;
  std::vector<std::string> warnings;
  std::optional<Violation> violation;  // the violation that ended the run
  // A failure has ended the job, and max_restarts was used up.
  bool has_given_up = false;
  // A SimulationWatch stopped the run; then `saves` has only saves whose decision all ranks received.
  bool stopped_early = false;
};

// Callbacks during a run; any of them may be empty. They run in the thread of simulate(). Times are virtual.
struct SimulationListeners {
  // An event is delivered to a role. `from`: the node that sent the message.
  std::function<void(actors::TimeNs now, size_t node, actors::RoleKind role, const actors::Event&,
                     size_t from)>
      event;
  // A node requests an operation.
  std::function<void(actors::TimeNs now, size_t node, const actors::Operation&)> operation;
  std::function<void(actors::TimeNs now, const Failure&)> failure;
  std::function<void(actors::TimeNs now, Rank, const local::Decided&)> decided;
  // Not called, but filled: what the roles of all runs and loads of the job did. Null: nobody counts.
  PathCounts* paths = nullptr;
  // The same: the run as trace events. Null: nobody records.
  Trace* trace = nullptr;
  // Not called either: false runs the job without oracles, for who asks only what it costs.
  bool has_oracles = true;
  // The run only shows what happens when: no audit at its end, and no message passes through its codec.
  bool is_rehearsal = false;
};

// Oracles check every run with at most this many ranks. Larger runs are checked only if they have failures.
inline constexpr uint32_t kRanksAlwaysChecked = 4096;

// How other threads observe a running simulation, and how they stop it early.
struct SimulationWatch {
  bool (*stop)() = nullptr;  // called from time to time; returning true stops the simulation
  std::atomic<actors::TimeNs> virtual_now{0};
  std::atomic<uint64_t> events{0};  // events that were delivered to roles
  std::atomic<uint32_t> saves_decided{0};
  std::atomic<uint64_t> milestones{0};  // out of milestones_of(scenario)
};
// The number of milestones that all ranks together pass in a simulation of this scenario if no host dies.
uint64_t milestones_of(const Scenario& scenario);

// Runs the scenario, on the profile with the numbers that the scenario sets. If the scenario asks for drawn
// failures, they are drawn here; the scenario in the report lists all failures. Code::deadline_exceeded if
// some living rank has not received the decision of a save within one virtual day.
Result<SimulationReport> simulate(const Scenario& scenario, const Profile& profile,
                                  const SimulationListeners& listeners = {},
                                  SimulationWatch* watch = nullptr);

}  // namespace shoal::sim
