// Runs a scenario under many seeds and checks whether an oracle is violated.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/jobs/scenario.h"
#include "sim/simulation.h"

namespace shoal::cli {

// A range of seeds, parsed from "3..7" or "3". Code::invalid_argument.
struct SeedRange {
  uint64_t first = 0, last = 0;
};
Result<SeedRange> parse_seeds(const std::string& text);
// A scenario of a sweep, and its name there: "ranks=512 mode=rank-local"; "" without a sweep.
struct SweepPoint {
  sim::Scenario scenario;
  std::string name;
};
// Runs each point under each seed, `jobs` in parallel (0: as many as processors), and prints how the runs of
// each point ended. Stops at the first violation, which it records, or at an interrupt. `always_shows`: shows
// progress even if stderr is not a terminal. Returns an exit status.
int run_seeds(const std::vector<SweepPoint>& points, const std::map<std::string, sim::Profile>& profiles,
              const SeedRange& seeds, unsigned jobs, bool always_shows);
// Writes a replay file of the run and reports it. Returns an exit status: kExitFailed if an oracle was
// violated, kExitUnusable if the file cannot be written.
int record_run(const sim::SimulationReport& report, const sim::Profile& profile, const std::string& file);
// Reports a violation and writes the replay file "violation-seed7.toml" in the working folder, with -2, -3,
// ... if the name is taken. `name`: name of the sweep point. Returns an exit status.
int report_violation(const sim::SimulationReport& report, const sim::Profile& profile,
                     const std::string& name = "");

}  // namespace shoal::cli
