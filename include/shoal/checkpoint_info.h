// CheckpointInfo: one attempt and its state, as Checkpointer::list returns it and `shoal ls` prints it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/metadata.h"

namespace shoal {

struct CheckpointInfo {
  enum class State : uint8_t {
    committed = 0,  // a checkpoint, which load can use
    aborted = 1,
    undecided = 2,  // still being written, or left undecided by a job that ended
    deleted = 3,    // a former checkpoint
    // The decision cannot be read back. If it is newer than all checkpoints, load(latest) fails.
    damaged = 4,
  };
  AttemptKey key;
  State state = State::undecided;
  // Set for a checkpoint only.
  uint32_t world_size = 0;
  uint32_t files = 0;
  uint64_t payload_bytes = 0;
  // Time of the decision, by the clock of the node that decided; 0: undecided or unknown.
  int64_t unix_time_ns = 0;
  std::string cause;  // if it is no checkpoint: the reason, where known

  bool committed() const { return state == State::committed; }
};
inline constexpr CheckpointInfo::State kLastCheckpointState = CheckpointInfo::State::damaged;
std::string_view state_name(CheckpointInfo::State state);  // "committed"

inline constexpr uint32_t kMaxListedCheckpoints = 10'000;  // at a time
inline constexpr size_t kMaxListedCauseBytes = 4096;       // a longer cause is cut

struct CheckpointList {
  std::vector<CheckpointInfo> attempts;  // ascending by AttemptKey: the newest is the last
  uint64_t omitted = 0;                  // number of older attempts that are not listed
};

}  // namespace shoal
