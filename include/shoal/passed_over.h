// PassedOver: which attempts are newer than the checkpoint that a load of the latest takes, and why they are
// not loaded. Whoever chooses the checkpoint lists them; each rank that loads it is told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shoal/metadata.h"

namespace shoal {

// What load(latest) does where the newest checkpoint is damaged.
enum class LoadFallback : uint8_t {
  none = 0,  // it fails, and names the damage
  // It takes the newest checkpoint whose manifest, files and digests are sound. Before any rank loads it, all
  // its bytes are read and verified.
  previous = 1,
};
// The ordinal of a load that may fall back has this bit. So its choice is another file than that of a load
// which may not: one that failed does not bind the next.
inline constexpr uint32_t kFallbackOrdinal = uint32_t{1} << 31;
constexpr bool may_fall_back(uint32_t ordinal) {
  return (ordinal & kFallbackOrdinal) != 0;
}

inline constexpr size_t kMaxPassedOverNamed = 8;
inline constexpr size_t kMaxPassedOverCauseBytes = 256;  // a longer cause is cut

struct PassedOverAttempt {
  AttemptKey key;
  std::string cause;  // one line: "aborted: rank 3 ...", "damaged: ...", "not decided yet"
  friend bool operator==(const PassedOverAttempt&, const PassedOverAttempt&) = default;
};
struct PassedOver {
  std::vector<PassedOverAttempt> named;  // the newest kMaxPassedOverNamed of them, the newest first
  uint64_t count = 0;                    // of all

  bool empty() const { return count == 0; }
  // From the newest down. Beyond kMaxPassedOverNamed an attempt is counted alone.
  void add(const AttemptKey& key, const std::string& cause);
  friend bool operator==(const PassedOver&, const PassedOver&) = default;
};
using PassedOverPtr = std::shared_ptr<const PassedOver>;  // nullptr: nothing was passed over
// "step 40 (g1a1) is aborted: too late; step 39 (g1a1) is damaged: ...; and 3 more"
std::string to_string(const PassedOver& passed_over);

}  // namespace shoal
