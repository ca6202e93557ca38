// Runs the simulations of `shoal sim`, several at once, shows how far they have come, and ends them early
// when the user asks for it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/simulation.h"

namespace shoal::cli {

struct SimulationRuns {
  // In the order of the scenarios, whichever ended first; none: not begun when the user asked to end.
  std::vector<std::optional<Result<sim::SimulationReport>>> reports;
  int interrupted_by = 0;  // SIGINT or SIGTERM; 0: by nobody
};

// `jobs`: at once; 0: as many as there are processors. `always_shows`: also where stderr is no terminal.
SimulationRuns run_simulations(const std::vector<sim::Scenario>& scenarios,
                               const std::map<std::string, sim::Profile>& profiles, unsigned jobs,
                               bool always_shows);

}  // namespace shoal::cli
