// Replay: a simulated run as a file. It is a scenario file with one more table. The file contains the
// scenario with every failure listed, the profile, the result, and the version of the program. A user may
// delete failures from the list and run the rest again.
//
//   ranks = 64
//   ...
//   [[failure]]
//   ...
//   [replay]
//   version = "0.1.0"
//   build = "5f1c0a2277b0e9d3"
//   trace = "814d48d7bac85b8a"
//   violation = "one-decision"
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "sim/simulation.h"

namespace shoal::sim {

struct Replay {
  std::string version, build;  // of the program that ran it; build: distinguishes two builds of one version
  Scenario scenario;
  Profile profile;
  uint64_t trace_hash = 0;
  uint64_t events = 0;
  std::string violation;  // name of the violated oracle; empty if none
};

Replay replay_of(const SimulationReport& report, const Profile& profile, std::string version,
                 std::string build = "");
std::string replay_text(const Replay& replay);
// Errors are "file:line: why".
Result<Replay> parse_replay(std::string_view text, const std::string& file);
// Code::version if the versions differ; the error names both.
Status check_version(const Replay& replay, std::string_view version);
// Describes how a second run differs from the recorded one, and whether another build recorded it. Returns ""
// if the two runs are the same.
std::string difference(const Replay& replay, const SimulationReport& again, std::string_view build = "");

}  // namespace shoal::sim
