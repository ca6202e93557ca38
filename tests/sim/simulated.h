// What a scenario of the tree's own profiles costs.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "sim/simulation.h"

namespace shoal::sim {

constexpr const char* kSource = SHOAL_SOURCE_FOLDER;
constexpr SaveMode kModes[] = {SaveMode::collective_free, SaveMode::rank_local, SaveMode::collective};

inline Profile profile_named(const std::string& name) {
  auto profile = find_profile(name, {std::string(kSource) + "/sim/profiles"});
  EXPECT_TRUE(profile.ok()) << profile.status().to_string();
  return *profile;
}

inline SimulationReport simulated(const Scenario& scenario, const SimulationListeners& listeners = {}) {
  auto report = simulate(scenario, profile_named(scenario.profile), listeners);
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  return *report;
}

// Saves at 10.00 s and some 20.05 s; a host's bytes of the second are durable at some 20.6 s.
inline Scenario of_eight_hosts(std::vector<Failure> failures = {},
                               SaveMode mode = SaveMode::collective_free) {
  Scenario scenario;
  scenario.ranks = 64;
  scenario.model = "llama3-8b";
  scenario.profile = "nvme";
  scenario.interval_ms = 10'000;
  scenario.mode = mode;
  scenario.failures = std::move(failures);
  return scenario;
}

}  // namespace shoal::sim
