// What a scenario of the tree's own profiles costs.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "sim/simulation.h"

namespace shoal::sim {

constexpr const char* kSource = SHOAL_SOURCE_FOLDER;
constexpr SaveMode kModes[] = {SaveMode::collective_free, SaveMode::rank_local, SaveMode::collective};

inline Profile profile_named(const std::string& name) {
  auto profile = find_profile(name, {std::string(kSource) + "/sim/profiles"});
  EXPECT_TRUE(profile.ok()) << profile.status().to_string();
  return *profile;
}

inline SimulationReport simulated(const Scenario& scenario) {
  auto report = simulate(scenario, profile_named(scenario.profile));
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  return *report;
}

}  // namespace shoal::sim
