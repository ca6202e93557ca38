// Charts of simulations: the cost of the last save against the number of ranks, with one line per combination
// of the other values that differ.
#pragma once

#include <string>
#include <vector>

#include "shoal/status.h"
#include "sim/reports/chart.h"
#include "sim/simulation.h"

namespace shoal::cli {

// The charts: time until all ranks know of the commit; time until save() has returned on all ranks; messages
// of the coordinator; bytes of these. Aborted saves are left out.
std::vector<sim::Chart> charts_of(const std::vector<sim::SimulationReport>& reports);
// The coordinator's queue, memory and descriptors over time, in the last save of each of the largest jobs.
std::vector<sim::Chart> charts_over_time(const std::vector<sim::SimulationReport>& reports);
// OK if a chart of these scenarios can be written to `file`. Code::invalid_argument if the name ends in
// neither .svg nor .html, or if there is only one number of ranks.
Status check_plot(const std::string& file, const std::vector<sim::Scenario>& scenarios);
// Writes the first chart as SVG, or all of them as an HTML page, as the name of the file ends.
Status write_plot(const std::string& file, const std::vector<sim::SimulationReport>& reports);

}  // namespace shoal::cli
