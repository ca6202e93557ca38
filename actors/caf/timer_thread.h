// TimerThread: the timers of one node's roles. Its thread sleeps until the earliest timer is due.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include "actors/role.h"

namespace shoal::actors {

class TimerThread {
 public:
  // `now` is the clock of all deadlines. `fire` is called on the timer thread, once for each set() that was
  // neither moved nor cancelled, with the serial of that set().
  TimerThread(std::function<TimeNs()> now, std::function<void(RoleKind, TimerId, uint64_t serial)> fire);
  ~TimerThread();  // nothing fires after it returns

  // Any thread. Setting a pending timer again moves it.
  void set(RoleKind role, TimerId timer, TimeNs at, uint64_t serial);
  void cancel(RoleKind role, TimerId timer);

 private:
  using Name = std::pair<RoleKind, TimerId>;
  struct Due {
    TimeNs at = 0;
    uint64_t serial = 0;
  };
  void run();

  const std::function<TimeNs()> now_;
  const std::function<void(RoleKind, TimerId, uint64_t)> fire_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopping_ = false;
  std::map<Name, Due> timers_;
  std::set<std::pair<TimeNs, Name>> order_;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace shoal::actors
