// WriteCounts: how many bytes the running writes of each attempt have written. A node that waits for a long
// write sees by it that the write goes on (docs/decisions/013-deadline-follows-the-last-news.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "shoal/checkpoint_info.h"

namespace shoal::actors {

// Any thread may call any method.
class WriteCounts {
 public:
  // Of all writes of one attempt that run at the same time.
  using Count = std::shared_ptr<std::atomic<uint64_t>>;
  // The caller keeps the count while it writes, and adds to it.
  Count begin(const AttemptKey& key) {
    std::lock_guard lock(mutex_);
    std::erase_if(counts_, [](const auto& each) { return each.second.expired(); });
    std::weak_ptr<std::atomic<uint64_t>>& known = counts_[key];
    Count count = known.lock();
    if (!count) known = count = std::make_shared<std::atomic<uint64_t>>(0);
    return count;
  }
  // Changes whenever a running write of these attempts makes progress: the sum of their counts.
  uint64_t change_mark(const std::vector<AttemptKey>& keys) {
    std::lock_guard lock(mutex_);
    uint64_t bytes = 0;
    for (const AttemptKey& key : keys) {
      auto found = counts_.find(key);
      const Count count = found == counts_.end() ? nullptr : found->second.lock();
      if (count) bytes += count->load(std::memory_order_relaxed);
    }
    return bytes;
  }

 private:
  std::mutex mutex_;
  std::map<AttemptKey, std::weak_ptr<std::atomic<uint64_t>>> counts_;  // bounded by the running writes
};

}  // namespace shoal::actors
