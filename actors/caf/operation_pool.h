// OperationPool: threads for work that blocks (storage), with a bounded queue.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace shoal::actors {

class OperationPool {
 public:
  OperationPool(size_t threads, size_t queued_max);
  ~OperationPool();  // finishes running jobs, drops queued ones

  // Any thread; never blocks. False: the queue is full. Jobs begin in the order in which they are started.
  bool start(std::function<void()> job);

 private:
  void run();

  const size_t queued_max_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;  // last: they use the members above
};

}  // namespace shoal::actors
