// Cuts a run that violates an oracle down to what the violation needs.
#pragma once

#include <functional>

#include "sim/simulation.h"

namespace shoal::sim {

// Runs a scenario: simulate() with a profile.
using RunScenario = std::function<Result<SimulationReport>(const Scenario&)>;

// Precondition: `report` has a violation. Removes failures one by one, then loads and saves, for as long as a
// run still violates the same oracle. Returns the report of the smallest such run; `report` itself if nothing
// can be removed. Takes at most a few hundred runs.
SimulationReport shrink(SimulationReport report, const RunScenario& run);

}  // namespace shoal::sim
