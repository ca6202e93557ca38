// RestartLimit: how often, and how soon, a process that ends early is started again.
//
// The limit counts what happened within a window of time: a crash loop ends, and a node that dies once a day
// is started again for as long as the training takes. The pause doubles with each restart in the window.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

namespace shoal {

inline constexpr uint32_t kMaxNodeRestarts = 5;
inline constexpr std::chrono::minutes kNodeRestartWindow{10};

class RestartLimit {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Counts a restart of what ended at `now`, and returns how long to wait before it: 0 s, 1 s, 2 s, 4 s, 8 s.
  // Nothing: kMaxNodeRestarts were counted within kNodeRestartWindow. Calls come in the order of their times.
  std::optional<std::chrono::seconds> next(Time now);
  // Those within the window, the one counted last among them.
  uint32_t count() const { return static_cast<uint32_t>(restarts_.size()); }

 private:
  std::deque<Time> restarts_;
};

}  // namespace shoal
