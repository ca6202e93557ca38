// Simulation: one scenario on one profile, from the start of its nodes to the decision of its last save.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "sim/counted_trainers.h"
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
  uint64_t parameters = 0;
  PhaseCosts joining;
  std::vector<SaveReport> saves;
  TimeNs ended = 0;     // virtual
  uint64_t events = 0;  // that roles were given
  uint64_t steps = 0;   // of virtual time
  uint64_t trace_hash = 0;
  std::vector<std::string> warnings;
};

// Code::deadline_exceeded where not every rank that lives has heard of a save within a virtual day.
Result<SimulationReport> simulate(const Scenario& scenario, const Profile& profile);

}  // namespace shoal
