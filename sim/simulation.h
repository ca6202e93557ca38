// Simulation: one scenario on one profile, from the start of its nodes to the decision of its last save.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "sim/counted_trainers.h"
#include "sim/oracles.h"
#include "sim/profile.h"
#include "sim/scenario.h"

namespace shoal {

// Of times of all ranks, in nanoseconds: the least, the median, the 99th percentile and the greatest, each of
// them a rank's own. Without those that never came to it, which are negative.
struct Spread {
  TimeNs least = 0, median = 0, p99 = 0, greatest = 0;
};
Spread spread_of(std::vector<TimeNs> times);

// What happened from the beginning of a save to that of the next; `joining`: before the first.
struct PhaseCosts {
  HubCounts hub;
  StorageCounts storage;
  uint64_t record_bytes = 0;  // of decisions, rosters and rank manifests
};
struct SaveReport {
  Spread told;       // until it knows what to write
  Spread blocked;    // until save returns: all is staged
  Spread written;    // until its last byte is durable
  Spread committed;  // until it is told the decision
  uint64_t bytes_staged = 0;
  uint32_t aborted_ranks = 0;  // that were told of an abort
  std::string cause;
  PhaseCosts costs;
};
struct SimulationReport {
  Scenario scenario;
  MeshShape mesh;
  uint32_t nodes = 0;
  uint32_t relays = 0;
  uint32_t layouts = 0;
  bool layouts_are_stated = false;  // by a manifest
  uint64_t parameters = 0;
  PhaseCosts joining;
  std::vector<SaveReport> saves;
  TimeNs ended = 0;     // virtual
  uint64_t events = 0;  // that roles were given
  uint64_t steps = 0;   // of virtual time
  uint64_t trace_hash = 0;
  std::vector<std::string> warnings;
  std::optional<Violation> violation;  // where it ended
};

// Who wants to hear of a run as it goes on; any may be empty. Times are virtual.
struct SimulationListeners {
  // A role is given an event; `from`: the node that a message comes from.
  std::function<void(TimeNs now, size_t node, RoleKind role, const Event&, size_t from)> event;
  std::function<void(TimeNs now, const Fault&)> fault;
  std::function<void(TimeNs now, Rank, const local::Decided&)> told;
};

// Up to so many ranks oracles look at every run, beyond that where there are faults.
inline constexpr uint32_t kRanksAlwaysChecked = 4096;

// Faults that the scenario says are to be drawn are drawn here; the report's scenario lists all of them.
// Code::deadline_exceeded where not every rank that lives has heard of a save within a virtual day.
Result<SimulationReport> simulate(const Scenario& scenario, const Profile& profile,
                                  const SimulationListeners& listeners = {});

}  // namespace shoal
