// What `shoal sim --sensitivity` shows.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "sim/reports/sensitivity.h"

namespace shoal {

// Assumed numbers by how much they matter, of each the last save's times with it halved and doubled.
std::string sensitivity_text(const SensitivityReport& report);
nlohmann::ordered_json sensitivity_json(const SensitivityReport& report);

}  // namespace shoal
