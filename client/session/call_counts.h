// CallCounts: the numbers of a rank's saves and loads, over all Checkpointers that a process opens for it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "shoal/checkpointer.h"
#include "shoal/hash.h"
#include "shoal/metadata.h"

namespace shoal::client {

// How often a rank has called save and load in a generation. These numbers identify its next saves and loads.
struct CallCounts {
  Nonce process;
  uint32_t generation = 0;
  AttemptCount attempts;
  AttemptKey last_save;  // the last one that was called; its attempt is 0 if there is none
  uint32_t saves = 0;    // in a job that only reads: loads of the latest that have ended
  // Loads since the last save, without direct ones. Ranks with different numbers share no loads until the
  // next save.
  uint32_t loads = 0;

  void begin_next() {
    ++saves;
    loads = 0;
  }
  // The number by which ranks recognize the same load. It restarts with each save, so that a rank that loaded
  // more often than the others has the same number again after the next save.
  uint32_t round() const { return saves * kLoadsBetweenSaves + std::min(loads, kLoadsBetweenSaves - 1); }
  static constexpr uint32_t kLoadsBetweenSaves = 4096;  // further loads share nothing
};

// The counts of this process for the rank. The next Checkpointer of the rank continues them: a node serves
// one Checkpointer of a rank at a time.
std::shared_ptr<CallCounts> call_counts(const CheckpointerOptions& options, uint32_t generation);

}  // namespace shoal::client
