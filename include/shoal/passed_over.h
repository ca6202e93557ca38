// PassedOver: the attempts newer than the checkpoint that a load of the latest uses, and why they are not
// loaded. The node that chooses the checkpoint lists them, and every rank that loads it gets the list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shoal/metadata.h"

namespace shoal {

// What load(latest) does if the newest checkpoint is damaged.
enum class LoadFallback : uint8_t {
  none = 0,  // the load fails and names the damage
  // The load uses the newest checkpoint whose manifest, files and digests are sound. Before any rank loads
  // it, one node reads and verifies all its bytes.
  previous = 1,
};
// The ordinal of a load with a fallback has this bit. Its load choice is therefore another file than that of
// a load without one, so that the choice of a failed load does not bind a later load with a fallback.
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
  uint64_t count = 0;                    // number of all passed over attempts

  bool empty() const { return count == 0; }
  // Call it from the newest to the oldest. After kMaxPassedOverNamed attempts it only counts.
  void add(const AttemptKey& key, const std::string& cause);
  friend bool operator==(const PassedOver&, const PassedOver&) = default;
};
using PassedOverPtr = std::shared_ptr<const PassedOver>;  // nullptr: nothing was passed over
// "step 40 (g1a1) is aborted: too late; step 39 (g1a1) is damaged: ...; and 3 more"
std::string to_string(const PassedOver& passed_over);

}  // namespace shoal
