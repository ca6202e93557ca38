// What the restarts of a simulated job cost, from each failure to the first save of the run after it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sim/simulation.h"

namespace shoal::cli {

// "" without restarts.
std::string restarts_text(const sim::SimulationReport& report);
nlohmann::ordered_json restarts_json(const sim::SimulationReport& report);
// A line of names, then one line per restart of each simulation; times in nanoseconds. A time that was not
// reached is empty.
std::string restarts_csv(const std::vector<sim::SimulationReport>& reports);

}  // namespace shoal::cli
