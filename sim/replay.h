// Replay: a run as a file: its scenario with every fault in the list, its profile, what came of it, and the
// version of the program. It is a scenario file with a table more, so that faults can be cut out of it and
// the rest be run again:
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
  std::string version, build;  // of the program that ran it; build: whatever tells two of a version apart
  Scenario scenario;
  Profile profile;
  uint64_t trace_hash = 0;
  uint64_t events = 0;
  std::string violation;  // the oracle's name; empty: none
};

Replay replay_of(const SimulationReport& report, const Profile& profile, std::string version,
                 std::string build = "");
std::string replay_text(const Replay& replay);
// "file:line: why".
Result<Replay> parse_replay(std::string_view text, const std::string& file);
// Code::version, naming both.
Status check_version(const Replay& replay, std::string_view version);
// What a second run by this build did otherwise, and whether another build recorded it; "" where it was the
// same.
std::string difference(const Replay& replay, const SimulationReport& again, std::string_view build = "");

}  // namespace shoal::sim
