// Aims failures at events of a run, instead of at times drawn from the clock: a save takes milliseconds of a
// minute, so that few failures drawn by time hit one.
//
// A *moment* is an event that is delivered to a role, or an operation that a node requests:
// "coordinator: Received ShardsWritten", "node: WriteShard". Runs are deterministic, and a failure changes
// nothing before it begins. So each failure is aimed with a run that has the earlier failures only: a kind of
// moment is drawn, rare kinds as often as common ones, then one moment of that kind in that run.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "shoal/status.h"
#include "sim/jobs/scenario.h"
#include "sim/models/profile.h"

namespace shoal::sim {

// How often failures were aimed, by moment and by kind of failure.
using AimCounts = std::map<std::pair<std::string, Failure::Kind>, uint64_t>;

// What a failure that is aimed may be.
struct Aim {
  std::vector<Failure::Kind> kinds;  // one of these; none: any kind but job_restarts
  bool is_brief = false;             // it lasts for 2 s at most, and delays a message by 0.5 s at most
  std::string moment = {};           // only at this moment; a job without it has no such failure. "": at any
  bool is_near = false;              // within milliseconds after the failure before, at its node
};

// Returns the scenario with more failures, one for each of `aims`. `seed` decides where they are; equal
// arguments give equal failures. Adds them to `counts`. Errors are those of simulate(). Takes a run of the
// scenario for each.
Result<Scenario> aim_failures(const Scenario& scenario, const Profile& profile, const std::vector<Aim>& aims,
                              uint64_t seed, AimCounts* counts);

}  // namespace shoal::sim
