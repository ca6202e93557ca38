// Re-reads a checkpoint: every byte of its files against the digests that its manifest vouches for.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "storage/decision.h"
#include "storage/storage.h"

namespace shoal {

inline constexpr size_t kMaxDamageReported = 1000;  // of one checkpoint; the rest is counted
inline constexpr unsigned kMaxVerifyThreads = 64;

// One thing that is wrong. Tensor and block are empty where the whole file is.
struct Damage {
  std::string file;    // in the attempt's folder
  std::string tensor;  // key in the file
  int64_t block = -1;  // of the tensor, kDigestBlockBytes each
  std::string what;    // one line, with the full path
};

struct VerifyReport {
  uint64_t bytes = 0;  // read, headers included
  uint64_t files = 0;
  std::vector<Damage> damage;  // by file, then place; at most kMaxDamageReported
  uint64_t damage_count = 0;

  bool ok() const { return damage_count == 0; }
};

// Checks each file's size, its header against the manifest's digest, its contents against what the plan says
// that it holds, and every block of every piece against its digest; and that the pieces cover every value.
// `bytes_done` grows as it goes; any thread may read it. A failure to read is damage like any other.
VerifyReport verify_checkpoint(Storage& storage, const Decision& decision, unsigned threads,
                               std::atomic<uint64_t>* bytes_done);

}  // namespace shoal
