// RestartLimit: how often and how soon a process that ends early is restarted.
//
// The limit counts the restarts within a window of time. So a crash loop ends, but a node that dies once a
// day is restarted as long as the training takes. It also counts all restarts since a node was last ready. So
// nodes that take minutes to fail and never become ready end too. The pause doubles with each restart that
// counts, up to kLongestRestartPause.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace shoal::cli {

inline constexpr uint32_t kMaxNodeRestarts = 5;
inline constexpr std::chrono::minutes kNodeRestartWindow{10};
// Trainers must find the new node before host_lost_ms (15 s) aborts the saves that wait for it.
inline constexpr std::chrono::seconds kLongestRestartPause{4};

class RestartLimit {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Counts a restart of a process that ended at `now`, and returns the pause before it: 0 s, 1 s, 2 s, 4 s, 4
  // s. Returns nothing if kMaxNodeRestarts were counted within kNodeRestartWindow, or since on_ready. Calls
  // must come in the order of their times.
  std::optional<std::chrono::seconds> next(Time now);
  void on_ready() { since_ready_ = 0; }
  // The number of restarts within the window, or since on_ready if that is more. It includes the last one.
  uint32_t count() const { return std::max(static_cast<uint32_t>(restarts_.size()), since_ready_); }
  std::string describe() const;  // "2 of 5 times in 10 minutes", or "... since a node was ready"

 private:
  std::deque<Time> restarts_;  // restarts within the window
  uint32_t since_ready_ = 0;
};

}  // namespace shoal::cli
