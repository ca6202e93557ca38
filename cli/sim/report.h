// What `shoal sim` shows of simulations.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sim/simulation.h"

namespace shoal::cli {

// One simulation: each save's times over the ranks, then what it cost the coordinator and the storage.
std::string report_text(const sim::SimulationReport& report);
// Several beside each other: of each its last save, LAST BYTE and COMMIT of the last rank.
std::string comparison_text(const std::vector<sim::SimulationReport>& reports);
nlohmann::ordered_json report_json(const sim::SimulationReport& report);
// A line of names, then one a save of each; times in nanoseconds.
std::string report_csv(const std::vector<sim::SimulationReport>& reports);
// What the coordinator's node held over time: a line of names, then one a sample of each.
std::string timeline_csv(const std::vector<sim::SimulationReport>& reports);
std::string profile_text(const sim::Profile& profile);  // its numbers, and where they come from

}  // namespace shoal::cli
