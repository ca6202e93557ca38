// What a process counts of a rank's saves, over all the Checkpointers that it opens for it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "shoal/checkpointer.h"
#include "shoal/hash.h"
#include "shoal/metadata.h"

namespace shoal::client {

// How often a rank has called save in a generation, whichever Checkpointer it used: that names its next saves
// and loads.
struct CallCounts {
  Nonce process;
  uint32_t generation = 0;
  AttemptCount attempts;
  uint32_t saves = 0;  // of a job that only reads: loads of the latest that have ended
  uint32_t loads = 0;  // since the last save, but direct ones; as often on all ranks, else they share nothing
                       // until the next

  // What follows is named anew.
  void begin_next() {
    ++saves;
    loads = 0;
  }
  // By which ranks know a load: each save begins anew, so that a rank that loads more often than the others
  // comes back to them.
  uint32_t round() const { return saves * kLoadsBetweenSaves + std::min(loads, kLoadsBetweenSaves - 1); }
  static constexpr uint32_t kLoadsBetweenSaves = 4096;  // beyond, they share nothing
};

// What this process has counted so far, kept for the next Checkpointer of the rank: a node serves one at a
// time.
std::shared_ptr<CallCounts> call_counts(const CheckpointerOptions& options, uint32_t generation);

}  // namespace shoal::client
