// The swarm of `shoal fuzz`: each seed draws a small job of its own, with failures that are aimed at its
// events (sim/campaign/aimed_failures.h) or drawn from the clock. Swarm testing: Groce et al., ISSTA 2012. A
// job that leaves features out finds what a job with all of them hides. Jobs that took rare paths are
// continued with further failures, as fuzzers by coverage do with inputs that reached new code.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "sim/campaign/aimed_failures.h"
#include "sim/campaign/path_shares.h"

namespace shoal::sim {

struct SwarmLimits {
  std::optional<SaveMode> mode;  // null: any
  uint32_t most_failures = 6;
  // A third of the seeds continue one of these jobs, with one or two further failures. Null: no seed does. It
  // must outlive the calls.
  const RareSeeds* rare = nullptr;
  std::optional<Aim> also = {};  // each job has a failure more, aimed so
};
// A profile by its name, as a scenario names it; it must outlive the call.
using ProfileByName = std::function<const Profile&(const std::string&)>;
// The profiles that draw_case uses.
inline constexpr const char* kSwarmProfiles[] = {"nvme", "lustre", "object-store"};

// The scenario of this seed, with all its failures. Equal arguments give equal scenarios; a mode that
// `limits` names gives the scenario that the seed has if it draws this mode itself. Takes a run of it for
// each aimed failure. Adds the aimed failures to `counts`.
Result<Scenario> draw_case(uint64_t seed, const SwarmLimits& limits, const ProfileByName& profiles,
                           AimCounts* counts);

}  // namespace shoal::sim
