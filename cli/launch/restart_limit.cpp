#include "cli/launch/restart_limit.h"

#include <fmt/format.h>

namespace shoal::cli {

std::optional<std::chrono::seconds> RestartLimit::next(Time now) {
  while (!restarts_.empty() && now - restarts_.front() >= kNodeRestartWindow) restarts_.pop_front();
  if (count() >= kMaxNodeRestarts) return std::nullopt;
  restarts_.push_back(now);
  ++since_ready_;
  if (count() == 1) return std::chrono::seconds(0);
  return std::min(std::chrono::seconds(int64_t{1} << (count() - 2)), kLongestRestartPause);
}

std::string RestartLimit::describe() const {
  const bool is_by_window = restarts_.size() >= since_ready_;
  return fmt::format(
      "{} of {} times {}", count(), kMaxNodeRestarts,
      is_by_window ? fmt::format("in {} minutes", kNodeRestartWindow.count()) : "since a node was ready");
}

}  // namespace shoal::cli
