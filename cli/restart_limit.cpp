#include "cli/restart_limit.h"

namespace shoal {

std::optional<std::chrono::seconds> RestartLimit::next(Time now) {
  while (!restarts_.empty() && now - restarts_.front() >= kNodeRestartWindow) restarts_.pop_front();
  if (restarts_.size() >= kMaxNodeRestarts) return std::nullopt;
  restarts_.push_back(now);
  if (restarts_.size() == 1) return std::chrono::seconds(0);
  return std::chrono::seconds(int64_t{1} << (restarts_.size() - 2));
}

}  // namespace shoal
