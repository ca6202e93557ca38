// Re-reads a checkpoint: every byte of its files against the digests that its manifest vouches for.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "shoal/status.h"
#include "storage/decisions/decision.h"
#include "storage/storage.h"

namespace shoal::storage {

inline constexpr size_t kMaxDamageReported = 1000;  // of one checkpoint; the rest is counted
inline constexpr unsigned kMaxVerifyJobs = 64;

// The block of a piece that differs from its digest, and where that lies. Ranges are half open.
struct DamagedBlock {
  uint64_t number = 0;  // in the piece, kDigestBlockBytes each
  uint64_t file_begin = 0, file_end = 0;
  uint64_t element_begin = 0, element_end = 0;  // of the piece, row-major; bytes of an object
  Dims first_index, last_index;                 // of those elements in the whole tensor; empty for an object
};

// One thing that is wrong. Without tensor, it is the whole file; without block, the whole piece.
struct Damage {
  std::string file;    // in the attempt's folder
  std::string tensor;  // fqn
  std::string key;     // in the file; mostly the fqn
  std::optional<DamagedBlock> block;
  std::string what;  // one line, with the full path
  // not_found and corrupt: it is damaged. Any other: it could not be read, and may be sound.
  Code code = Code::corrupt;
};

struct VerifyReport {
  uint64_t bytes = 0;  // read, headers included
  uint64_t files = 0;
  std::vector<Damage> damage;  // by file, then place; the first kMaxDamageReported of them
  uint64_t damage_count = 0;

  bool ok() const { return damage_count == 0; }
};

// OK: all is sound. Code::corrupt: what is damaged, the first place by name; files that are missing too. Any
// other code: something could not be read, so that nobody knows.
Status as_status(const VerifyReport& report);

// Spreads reads over time, so that all who take from it together stay below a rate. Any thread.
class RateLimit {
 public:
  explicit RateLimit(uint64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}  // 0: no limit
  // Returns when `bytes` more may be read.
  void take(uint64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;
  const uint64_t bytes_per_second_;
  std::mutex mutex_;
  Clock::time_point free_at_{};  // when what was taken so far is paid for
};

// Checks each file's size, its header against the manifest's digest, its contents against what the plan says
// that it holds, and every block of every piece against its digest; that the pieces cover every value, and
// add up to what the manifest says. Files, and the blocks of large ones, are divided among `jobs` threads,
// each of which has one block in memory; beside them the headers of `jobs` files are. `bytes_done` grows as
// it goes; any thread may read it. A failure to read is damage like any other.
VerifyReport verify_checkpoint(Storage& storage, const Decision& decision, unsigned jobs, RateLimit& rate,
                               std::atomic<uint64_t>* bytes_done);

}  // namespace shoal::storage
