// What a restart of the job has cost, and which checkpoint it loaded: the parts of a RestartReport
// (sim/simulation.h) that come from the root and from the saves of all runs.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "sim/cluster/counted_root.h"
#include "sim/simulation.h"

namespace shoal::sim {

// How a run of the job ended.
struct RunEnd {
  Failure failure;
  actors::TimeNs failed = 0;  // when the failure began
  actors::TimeNs ended = -1;  // when its processes were killed; negative: not yet
  uint32_t saves_begun = 0;
  bool coordinator_host_lives = true;
};

// The attempts of earlier runs as a run finds them when it begins.
struct RootBefore {
  std::map<AttemptKey, NewerAttempt::State> attempts;

  // `saves_begun`: of the run of this generation, which has ended.
  static RootBefore of(const CountedRoot& root, uint32_t generation, uint32_t saves_begun);
};

// The attempts above `checkpoint`, as the root has them now. None: above nothing.
std::vector<NewerAttempt> newer_attempts(const CountedRoot& root, const RootBefore& before,
                                         const std::optional<AttemptKey>& checkpoint);

// Fills in lost_steps and saved of each restart of the report, whose saves are complete.
void add_losses(SimulationReport& report);

}  // namespace shoal::sim
