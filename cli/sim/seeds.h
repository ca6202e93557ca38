// One scenario under many seeds, as a campaign runs it: what matters is whether an oracle is violated.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/jobs/scenario.h"
#include "sim/simulation.h"

namespace shoal::cli {

// "3..7" or "3"; Code::invalid_argument.
struct SeedRange {
  uint64_t first = 0, last = 0;
};
Result<SeedRange> parse_seeds(const std::string& text);
// A scenario of a sweep, and what it is called in it: "ranks=512 mode=rank-local"; "" of no sweep.
struct SweepPoint {
  sim::Scenario scenario;
  std::string name;
};
// Runs each point under each seed, `jobs` at once (0: as many as there are processors), and says how the runs
// of each ended; stops at the first violation, which is recorded, and where the user asks for it.
// `always_shows`: progress, also where stderr is no terminal. An exit status.
int run_seeds(const std::vector<SweepPoint>& points, const std::map<std::string, sim::Profile>& profiles,
              const SeedRange& seeds, unsigned jobs, bool always_shows);
// Writes a replay file of the run, and says so; an exit status: kExitFailed where an oracle was violated,
// kExitUnusable where it cannot be written.
int record_run(const sim::SimulationReport& report, const sim::Profile& profile, const std::string& file);
// Of a violation; says it, and writes the replay file, "violation-seed7.toml" in this folder, or -2, -3, ...
// where that is taken. `name`: of the point of a sweep. An exit status.
int report_violation(const sim::SimulationReport& report, const sim::Profile& profile,
                     const std::string& name = "");

}  // namespace shoal::cli
