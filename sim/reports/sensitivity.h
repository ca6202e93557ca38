// Sensitivity: how much each assumed number of a profile matters to a job: the job is run with it halved and
// doubled, all others being as they are.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "shoal/status.h"
#include "sim/simulation.h"

namespace shoal::sim {

struct SensitivityRun {
  int64_t value = 0;     // of the number
  bool has_run = false;  // else it cannot have this value: what follows is that of the job itself
  actors::TimeNs blocked = 0, committed = 0;  // of the last save, the slowest rank
  std::string cause;                          // of an abort
};
struct Sensitivity {
  Profile::Number number;
  SensitivityRun halved, doubled;
  // The greatest change against the job itself, in thousandths of its time, of the two runs.
  uint64_t blocked_permille = 0, committed_permille = 0;
};
struct SensitivityReport {
  SimulationReport job;
  std::vector<Sensitivity> numbers;  // by the greater of the two changes, descending; equal ones by key
  uint32_t zeros = 0;                // assumed numbers that are 0, which has no half
  uint32_t missing = 0;              // that are not there since it was ended early
};

// What other threads see of it, and how they end it early.
struct SensitivityWatch {
  bool (*stop)() = nullptr;  // asked now and then; true: it ends
  std::atomic<uint64_t> runs{0}, ended{0};
};

// On `jobs` threads; 0: as many as there are processors. The first error of any run is returned. Where it was
// ended early: those numbers of which all runs had ended; Code::aborted where the job's own had not.
Result<SensitivityReport> find_sensitivity(const Scenario& scenario, const Profile& profile, unsigned jobs,
                                           SensitivityWatch* watch = nullptr);

}  // namespace shoal::sim
