// Runs the simulations of `shoal sim`, several in parallel. Shows their progress, and stops them early if the
// user interrupts.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/simulation.h"

namespace shoal::cli {

// Folders of the built-in profiles, for sim::find_profile.
std::vector<std::string> profile_folders();

struct SimulationRuns {
  // In the order of the scenarios; none: not started before the interrupt.
  std::vector<std::optional<Result<sim::SimulationReport>>> reports;
  int interrupted_by = 0;  // SIGINT or SIGTERM; 0: not interrupted
};

// `jobs`: number of parallel simulations; 0: as many as processors. `always_shows`: shows progress even if
// stderr is not a terminal. `listeners`: of a single simulation.
SimulationRuns run_simulations(const std::vector<sim::Scenario>& scenarios,
                               const std::map<std::string, sim::Profile>& profiles, unsigned jobs,
                               bool always_shows, const sim::SimulationListeners& listeners = {});

}  // namespace shoal::cli
