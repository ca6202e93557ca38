// FreeSpace: bytes that are left in the root, for the status page. Storage that hangs must not hold up the
// page: a thread of its own asks, at most one at a time, and newest() returns the last answer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace shoal::actors {

inline constexpr int64_t kFreeSpaceAgeNs = 10'000'000'000;  // an older answer is asked for again

class FreeSpace {
 public:
  explicit FreeSpace(std::string root);
  // Any thread; never waits. nullopt: not known yet, or the storage has not answered for a minute.
  std::optional<uint64_t> newest();

 private:
  struct State;
  std::shared_ptr<State> state_;  // also of the thread, which may hang longer than this object exists
};

}  // namespace shoal::actors
