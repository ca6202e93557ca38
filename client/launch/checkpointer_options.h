// What Checkpointer::open makes of its options, and of a state where they name a process group.
#pragma once

#include "shoal/checkpointer.h"
#include "shoal/status.h"

namespace shoal::client {

inline constexpr uint64_t kMinWindowBytes = uint64_t{4} << 20;  // of a load; what a node asks for

// Checks them, and fills in what is left open: the job's id, which may wait for rank 0, and what the
// environment and the mode say. From then on rank and world_size are those within the process group.
// Code::invalid_argument, or what agreeing on an id says.
Status complete_options(CheckpointerOptions& options);

// The state as the ranks of the process group call each other: its meshes, and the owners of its devices.
// Code::invalid_argument, naming fqn and rank: a mesh goes beyond the group.
Result<StateDict> in_process_group(const CheckpointerOptions& options, const StateDict& state);

// This rank as meshes that are given to a Checkpointer call it.
inline Rank rank_in_world(const CheckpointerOptions& options) {
  return options.process_group.empty() ? options.rank : options.process_group[options.rank];
}

}  // namespace shoal::client
