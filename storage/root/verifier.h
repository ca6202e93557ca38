// Reads a whole checkpoint again and checks every byte of its files against the digests of its manifest.
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

inline constexpr size_t kMaxDamageReported = 1000;  // of one checkpoint; further damage is only counted
inline constexpr unsigned kMaxVerifyJobs = 64;

// A block of a piece that does not match its digest, and its position. Ranges are half open.
struct DamagedBlock {
  uint64_t number = 0;  // index in the piece, in blocks of kDigestBlockBytes
  uint64_t file_begin = 0, file_end = 0;
  uint64_t element_begin = 0, element_end = 0;  // of the piece, row-major; of an object, its bytes
  Dims first_index, last_index;                 // of those elements in the whole tensor; empty for an object
};

// One defect. Without `tensor` it concerns the whole file; without `block`, the whole piece.
struct Damage {
  std::string file;    // in the attempt's folder
  std::string tensor;  // fqn
  std::string key;     // in the file; usually equal to the fqn
  std::optional<DamagedBlock> block;
  std::string what;  // one line, with the full path
  // not_found and corrupt: the data is damaged. Any other code: it could not be read and may be intact.
  Code code = Code::corrupt;

  bool is_unread() const { return code != Code::corrupt && code != Code::not_found; }
};

struct VerifyReport {
  uint64_t bytes = 0;  // read, headers included
  uint64_t files = 0;
  std::vector<Damage> damage;  // by file, then position; the first kMaxDamageReported
  uint64_t damage_count = 0;
  uint64_t unread_count = 0;  // of these, what could not be read

  bool ok() const { return damage_count == 0; }
  bool is_damaged() const { return damage_count > unread_count; }
};

// OK: no damage. Code::corrupt: the message names the first damage; missing files count. Any other code:
// something could not be read, so the state is unknown.
Status as_status(const VerifyReport& report);

// Delays reads so that all threads that share this object stay below a rate. Any thread.
class RateLimit {
 public:
  explicit RateLimit(uint64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}  // 0: no limit
  // Blocks until the caller may read `bytes` more.
  void take(uint64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;
  const uint64_t bytes_per_second_;
  std::mutex mutex_;
  Clock::time_point free_at_{};  // when the bytes taken so far are used up
};

// Checks, for each file, its size, its header against the manifest's digest, its contents against the plan,
// and every block of every piece against its digest. Also checks that the pieces cover every value and that
// their sizes match the manifest.
//
// `jobs` threads share the files and the blocks of large files. Each thread has one block in memory, or 8 of
// a root in an object store; the headers of `jobs` files are in memory too. `bytes_done` grows meanwhile and
// may be read by any thread. A failure to read is reported as damage.
VerifyReport verify_checkpoint(Storage& storage, const Decision& decision, unsigned jobs, RateLimit& rate,
                               std::atomic<uint64_t>* bytes_done);

// About so many requests a verification makes to an object store, besides those that find the checkpoint.
uint64_t requests_to_verify(const Manifest& manifest);

}  // namespace shoal::storage
