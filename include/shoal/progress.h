// Progress of saves and loads, for displays.
#pragma once

#include <cstdint>
#include <string_view>

#include "shoal/metadata.h"

namespace shoal {

enum class ProgressPhase : uint8_t {
  staging = 0,     // a save: bytes are copied, or other ranks of this host have not staged yet
  writing = 1,     // a save: the node writes files
  committing = 2,  // a save: this host has written; other hosts or the decision are awaited
  choosing = 3,    // a load: the checkpoint is chosen and the reads are planned
  reading = 4,     // a load: bytes are read, verified and placed
};
// "staging", "writing", ...
constexpr std::string_view progress_phase_name(ProgressPhase phase) {
  constexpr std::string_view kNames[] = {"staging", "writing", "committing", "choosing", "reading"};
  return kNames[static_cast<uint8_t>(phase)];
}

struct Progress {
  AttemptKey key;  // of a save
  ProgressPhase phase = ProgressPhase::staging;
  // Of a save: the bytes of all ranks of this host. Of a load: those of the tensors of this rank.
  uint64_t bytes_done = 0, bytes_total = 0;
};

}  // namespace shoal
