// Completes the options of Checkpointer::open, and renumbers the ranks of a state in a process group.
#pragma once

#include "shoal/checkpointer.h"
#include "shoal/status.h"

namespace shoal::client {

inline constexpr uint64_t kMinWindowBytes = uint64_t{4} << 20;  // of a load window; nodes require it

// Checks the options and fills in unset ones from the environment and the mode. Gets the job id, for which it
// may have to wait for rank 0. Afterwards rank and world_size are those in the process group.
// Code::invalid_argument, or an error of agree_on_job_id.
Status complete_options(CheckpointerOptions& options);

// The state with meshes and owners of devices renumbered to positions in the process group.
// Code::invalid_argument names fqn and rank: a mesh has a rank that is not in the group.
Result<StateDict> in_process_group(const CheckpointerOptions& options, const StateDict& state);

// This rank's number in the launcher's world, which the caller's meshes use.
inline Rank rank_in_world(const CheckpointerOptions& options) {
  return options.process_group.empty() ? options.rank : options.process_group[options.rank];
}

}  // namespace shoal::client
