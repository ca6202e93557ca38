// Sensitivity: how much each assumed number of a profile affects a job. The job runs with the number halved
// and doubled, and all other numbers unchanged.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "shoal/status.h"
#include "sim/simulation.h"

namespace shoal::sim {

struct SensitivityRun {
  int64_t value = 0;  // value of the number
  // false: the number cannot have this value, and the other fields are those of the job itself
  bool has_run = false;
  actors::TimeNs blocked = 0, committed = 0;  // the slowest rank in the last save
  std::string cause;                          // cause of an abort
};
struct Sensitivity {
  Profile::Number number;
  SensitivityRun halved, doubled;
  // The greatest change in the two runs against the job itself, in thousandths of the job's time.
  uint64_t blocked_permille = 0, committed_permille = 0;
};
struct SensitivityReport {
  SimulationReport job;
  std::vector<Sensitivity> numbers;  // by the greater of the two changes, descending; then by key
  uint32_t zeros = 0;                // assumed numbers that are 0, which cannot be halved
  uint32_t missing = 0;              // numbers without a result because it was stopped early
};

// How other threads observe it, and how they stop it early.
struct SensitivityWatch {
  bool (*stop)() = nullptr;  // called from time to time; returning true stops it
  std::atomic<uint64_t> runs{0}, ended{0};
};

// Runs on `jobs` threads; 0: as many as processors. Returns the first error of any run. If stopped early, the
// report has the numbers of which all runs had ended; Code::aborted if the run of the job itself had not
// ended.
Result<SensitivityReport> find_sensitivity(const Scenario& scenario, const Profile& profile, unsigned jobs,
                                           SensitivityWatch* watch = nullptr);

}  // namespace shoal::sim
