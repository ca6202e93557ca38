// CallWatch: detects a storage call that takes long while it is still running. A hanging storage leaves no
// other trace: the calling thread waits in the kernel.
//
// It watches single calls (an open, an fsync, a write of some MiB), not whole operations. A shard of 100 GB
// takes minutes, but each of its calls takes milliseconds.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace shoal::storage {

inline constexpr int64_t kSlowCallNs =
    5'000'000'000;  // A call is logged, and shown by `shoal status`, once it is this old.

struct SlowCall {
  std::string what;  // "fsync of /root/step-00000001"
  uint64_t age_ms = 0;
};

class CallWatch {
 public:
  using Now = std::function<int64_t()>;  // reads a monotonic clock, in nanoseconds
  using Log = std::function<void(const std::string& line)>;

  CallWatch(Now now, Log log) : now_(std::move(now)), log_(std::move(log)) {}
  ~CallWatch();
  CallWatch(const CallWatch&) = delete;

  // Starts a thread that calls look() once a second. Any other thread may itself be stuck in a call.
  void start();

  // Registers one call from its construction until its end, on the caller's stack. `operation`, `folder` and
  // `name` must outlive it. Costs two short locks and two clock readings.
  class Call {
   public:
    Call(CallWatch& watch, const char* operation, std::string_view folder, std::string_view name = {});
    ~Call() { end(0); }
    Call(const Call&) = delete;
    int end(int error_number);  // returns error_number

   private:
    friend class CallWatch;
    std::string describe() const;

    CallWatch& watch_;
    const char* const operation_;
    const std::string_view folder_, name_;
    const int64_t began_ns_;
    int64_t next_line_ns_ = kSlowCallNs;  // the age at which the next line is logged
    bool has_ended_ = false;
    Call *before_ = nullptr, *after_ = nullptr;  // in the watch's list
  };

  // Logs calls that have not returned after 5, 10, 20, 40 s and so on. The thread calls it.
  void look();
  // The calls older than kSlowCallNs, at most `most`, oldest first.
  std::vector<SlowCall> slow(size_t most) const;
  int64_t oldest_ns() const;  // age of the oldest running call; 0 if none runs

 private:
  const Now now_;
  const Log log_;
  mutable std::mutex mutex_;
  Call *first_ = nullptr, *last_ = nullptr;  // in the order in which they began

  std::mutex stop_mutex_;
  std::condition_variable stopped_;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace shoal::storage
