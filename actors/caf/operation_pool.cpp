#include "actors/caf/operation_pool.h"

#include <utility>

#include "base/crash_report.h"

namespace shoal::actors {

OperationPool::OperationPool(size_t threads, size_t queued_max) : queued_max_(queued_max) {
  threads_.reserve(threads);
  for (size_t i = 0; i < threads; ++i) threads_.push_back(base::vital_thread([this] { run(); }));
}

OperationPool::~OperationPool() {
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool OperationPool::start(std::function<void()> job) {
  {
    std::lock_guard lock(mutex_);
    if (queue_.size() >= queued_max_) return false;
    queue_.push_back(std::move(job));
  }
  changed_.notify_one();
  return true;
}

void OperationPool::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_stopping_ || !queue_.empty(); });
    if (is_stopping_) return;
    std::function<void()> job = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
  }
}

}  // namespace shoal::actors
