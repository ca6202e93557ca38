#include "actors/caf/timer_thread.h"

#include <chrono>
#include <utility>

#include "base/crash_report.h"

namespace shoal::actors {

TimerThread::TimerThread(std::function<TimeNs()> now, std::function<void(RoleKind, TimerId, uint64_t)> fire)
    : now_(std::move(now)), fire_(std::move(fire)), thread_(base::vital_thread([this] { run(); })) {}

TimerThread::~TimerThread() {
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void TimerThread::set(RoleKind role, TimerId timer, TimeNs at, uint64_t serial) {
  Name name{role, timer};
  {
    std::lock_guard lock(mutex_);
    auto [it, is_new] = timers_.try_emplace(name);
    if (!is_new) order_.erase({it->second.at, name});
    it->second = {at, serial};
    order_.insert({at, name});
  }
  changed_.notify_all();
}

void TimerThread::cancel(RoleKind role, TimerId timer) {
  Name name{role, timer};
  std::lock_guard lock(mutex_);
  auto it = timers_.find(name);
  if (it == timers_.end()) return;
  order_.erase({it->second.at, name});
  timers_.erase(it);
}

void TimerThread::run() {
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    if (order_.empty()) {
      changed_.wait(lock);
      continue;
    }
    auto [at, name] = *order_.begin();
    TimeNs wait_ns = at - now_();
    if (wait_ns > 0) {
      changed_.wait_for(lock, std::chrono::nanoseconds(wait_ns));
      continue;
    }
    uint64_t serial = timers_.at(name).serial;
    order_.erase(order_.begin());
    timers_.erase(name);
    lock.unlock();
    fire_(name.first, name.second, serial);
    lock.lock();
  }
}

}  // namespace shoal::actors
