// The output of `shoal sim --sensitivity`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "sim/reports/sensitivity.h"

namespace shoal::cli {

// "sim: 12 of 41 runs, 3.1/s, 9.4 s left", after this many seconds.
std::string sensitivity_progress(const sim::SensitivityWatch& watch, double seconds);
// The assumed numbers by their effect, each with the times of the last save with it halved and doubled.
std::string sensitivity_text(const sim::SensitivityReport& report);
nlohmann::ordered_json sensitivity_json(const sim::SensitivityReport& report);

}  // namespace shoal::cli
