// CheckpointInfo: one attempt at a save, and what became of it, as Checkpointer::list and `shoal ls` show it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/metadata.h"

namespace shoal {

struct CheckpointInfo {
  enum class State : uint8_t {
    committed = 0,  // a checkpoint: load sees it
    aborted = 1,
    undecided = 2,  // being written, or left by a job that ended
    deleted = 3,    // was a checkpoint
    damaged = 4,    // its decision does not read back. Above all checkpoints: load(latest) refuses
  };
  AttemptKey key;
  State state = State::undecided;
  // Of a checkpoint.
  uint32_t world_size = 0;
  uint32_t files = 0;
  uint64_t payload_bytes = 0;
  int64_t unix_time_ns =
      0;              // when it was decided, by the clock of whoever decided; 0: undecided or not known
  std::string cause;  // of any other: why it is no checkpoint, where that is known

  bool committed() const { return state == State::committed; }
};
inline constexpr CheckpointInfo::State kLastCheckpointState = CheckpointInfo::State::damaged;
std::string_view state_name(CheckpointInfo::State state);  // "committed"

inline constexpr uint32_t kMaxListedCheckpoints = 10'000;  // at a time
inline constexpr size_t kMaxListedCauseBytes = 4096;       // a longer cause is cut

struct CheckpointList {
  std::vector<CheckpointInfo> attempts;  // ascending, as `latest` orders: the newest is the last
  uint64_t omitted = 0;                  // older ones that were not asked for
};

}  // namespace shoal
