// The output of `shoal sim` about simulations.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sim/simulation.h"

namespace shoal::cli {

// One simulation: the times of each save over the ranks, then its cost for the coordinator and the storage.
std::string report_text(const sim::SimulationReport& report);
// Several simulations side by side: LAST BYTE and COMMIT of the last rank, in the last save of each.
std::string comparison_text(const std::vector<sim::SimulationReport>& reports);
nlohmann::ordered_json report_json(const sim::SimulationReport& report);
// A line of names, then one line per save of each simulation; times in nanoseconds.
std::string report_csv(const std::vector<sim::SimulationReport>& reports);
// The state of the coordinator's node over time: a line of names, then one line per sample of each
// simulation.
std::string timeline_csv(const std::vector<sim::SimulationReport>& reports);

// Parts of report_json.
nlohmann::ordered_json costs_json(const sim::PhaseCosts& costs);
nlohmann::ordered_json spread_json(const sim::Spread& spread);

}  // namespace shoal::cli
