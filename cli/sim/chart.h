// Charts of simulations: what their last saves cost against the number of ranks, a line for each combination
// of what else differs between them.
#pragma once

#include <string>
#include <vector>

#include "shoal/status.h"
#include "sim/reports/chart.h"
#include "sim/simulation.h"

namespace shoal::cli {

// Until all ranks know of the commit; until save returns on all; the coordinator's messages, and their bytes.
// Aborted saves are left out.
std::vector<sim::Chart> charts_of(const std::vector<sim::SimulationReport>& reports);
// The coordinator's queue, memory and descriptors over time, in the last save of each of the largest jobs.
std::vector<sim::Chart> charts_over_time(const std::vector<sim::SimulationReport>& reports);
// OK where `file` can be written as a chart of these scenarios. Code::invalid_argument: neither .svg nor
// .html, or only one number of ranks.
Status check_plot(const std::string& file, const std::vector<sim::Scenario>& scenarios);
// The first chart as SVG, or all of them as a page of HTML, by the name's ending.
Status write_plot(const std::string& file, const std::vector<sim::SimulationReport>& reports);

}  // namespace shoal::cli
