// Simulation: one scenario on one profile, from the start of its nodes to the decision of its last save.
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

namespace shoal::sim {

// Of times of all ranks, in nanoseconds: the least, the median, the 99th percentile and the greatest, each of
// them a rank's own. Without those that never came to it, which are negative.
struct Spread {
  actors::TimeNs least = 0, median = 0, p99 = 0, greatest = 0;
  std::vector<actors::TimeNs> further;  // by kFurtherPermille
  std::vector<uint64_t> histogram;      // ranks; as wide each, from the least to the greatest
};
inline constexpr uint32_t kFurtherPermille[] = {10, 50, 100, 250, 500, 750, 900, 950, 990, 999};
inline constexpr size_t kHistogramBars = 20;
Spread spread_of(std::vector<actors::TimeNs> times);

// What happened from the beginning of a save to that of the next; `joining`: before the first.
struct PhaseCosts {
  HubCounts hub;
  HubState hub_peaks;
  StorageCounts storage;
  uint64_t record_bytes = 0;  // of decisions, rosters and rank manifests
};
struct SaveReport {
  actors::TimeNs began = 0;  // on the clock of the simulation
  Spread told;               // until it knows what to write
  Spread blocked;            // until save returns: all is staged
  Spread written;            // until its last byte is durable
  Spread committed;          // until it is told the decision
  uint64_t bytes_staged = 0;
  uint32_t told_ranks = 0;     // the decision
  uint32_t aborted_ranks = 0;  // of these, of an abort
  std::string cause;
  PhaseCosts costs;

  bool is_committed() const { return told_ranks != 0 && aborted_ranks == 0; }
  // "undecided": nobody was told, for all ranks were gone before, or the run ended.
  const char* outcome() const {
    return aborted_ranks != 0 ? "aborted" : told_ranks != 0 ? "committed" : "undecided";
  }
};
// The job starts again, as another generation, and loads the newest checkpoint on all ranks at once.
struct LoadReport {
  uint32_t ranks = 0, nodes = 0;
  MeshShape mesh;
  Spread found;                // from the start of the nodes: until it knows what to read
  Spread loaded;               // until its bytes lie where it wants them
  uint64_t bytes_wanted = 0;   // of all ranks
  uint64_t bytes_passed = 0;   // through their windows: the whole digest blocks that these touch
  uint64_t bytes_between = 0;  // that hosts sent each other, of a load that is shared
  PhaseCosts costs;
};
struct SimulationReport {
  Scenario scenario;
  MeshShape mesh;
  uint32_t nodes = 0;
  uint32_t relays = 0;
  uint32_t layouts = 0;
  bool layouts_are_stated = false;  // by a manifest
  uint64_t bytes_stored = 0;        // in files, where payloads are full
  uint64_t bytes_checked = 0;       // of these: that loads read back and found as they were staged
  uint64_t parameters = 0;
  PhaseCosts joining;
  std::vector<SaveReport> saves;
  std::vector<LoadReport> loads;
  std::vector<HubSample> hub_over_time;
  actors::TimeNs ended = 0;  // virtual, of the job that saves
  uint64_t events = 0;       // that roles were given
  uint64_t steps = 0;        // of virtual time
  uint64_t trace_hash = 0;
  std::vector<std::string> warnings;
  std::optional<Violation> violation;  // where it ended
  bool stopped_early = false;          // by a SimulationWatch: `saves` are those that all ranks had heard of
};

// Who wants to hear of a run as it goes on; any may be empty. Times are virtual.
struct SimulationListeners {
  // A role is given an event; `from`: the node that a message comes from.
  std::function<void(actors::TimeNs now, size_t node, actors::RoleKind role, const actors::Event&,
                     size_t from)>
      event;
  std::function<void(actors::TimeNs now, const Fault&)> fault;
  std::function<void(actors::TimeNs now, Rank, const local::Decided&)> told;
};

// Up to so many ranks oracles look at every run, beyond that where there are faults.
inline constexpr uint32_t kRanksAlwaysChecked = 4096;

// What other threads see of a simulation under way, and how they end it early.
struct SimulationWatch {
  bool (*stop)() = nullptr;  // asked now and then; true: it ends
  std::atomic<actors::TimeNs> virtual_now{0};
  std::atomic<uint64_t> events{0};  // that roles were given
  std::atomic<uint32_t> saves_decided{0};
  std::atomic<uint64_t> milestones{0};  // of milestones_of
};
// What ranks go through in a scenario's simulation where no host dies.
uint64_t milestones_of(const Scenario& scenario);

// Faults that the scenario says are to be drawn are drawn here; the report's scenario lists all of them.
// Code::deadline_exceeded where not every rank that lives has heard of a save within a virtual day.
Result<SimulationReport> simulate(const Scenario& scenario, const Profile& profile,
                                  const SimulationListeners& listeners = {},
                                  SimulationWatch* watch = nullptr);

}  // namespace shoal::sim
