// One scenario under many seeds, as a campaign runs it: what matters is whether an oracle is violated.
#pragma once

#include <string>

#include "sim/jobs/scenario.h"
#include "sim/simulation.h"

namespace shoal {

// "3..7" or "3"; Code::invalid_argument.
struct SeedRange {
  uint64_t first = 0, last = 0;
};
Result<SeedRange> parse_seeds(const std::string& text);
// Says how the runs ended, and stops at the first violation, which is recorded. An exit status.
int run_seeds(const Scenario& base, const Profile& profile, const SeedRange& seeds, unsigned jobs);
// Writes a replay file of the run, and says so; an exit status: kExitFailed where an oracle was violated.
int record_run(const SimulationReport& report, const Profile& profile, const std::string& file);
// Of a violation; says it, and writes the replay file, "violation-seed7.toml" in this folder.
void report_violation(const SimulationReport& report, const Profile& profile);

}  // namespace shoal
