// CallWatch: notices a call on storage that takes long, while it is still under way. Storage that hangs
// leaves no other trace: the thread that called it waits in the kernel.
//
// Whole operations are not watched, only single calls (an open, an fsync, a write of some MiB): a shard of
// 100 GB takes minutes, and its calls take milliseconds.
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
    5'000'000'000;  // from here on a call is logged, and shown by `shoal status`

struct SlowCall {
  std::string what;  // "fsync of /root/step-00000001"
  uint64_t age_ms = 0;
};

class CallWatch {
 public:
  using Now = std::function<int64_t()>;  // a monotonic clock's nanoseconds
  using Log = std::function<void(const std::string& line)>;

  CallWatch(Now now, Log log) : now_(std::move(now)), log_(std::move(log)) {}
  ~CallWatch();
  CallWatch(const CallWatch&) = delete;

  // A thread of its own looks once a second: any other may be the one that hangs.
  void start();

  // One call, from its construction to its end, on the caller's stack. `operation` and both parts of the path
  // outlive it. It costs two short locks and two readings of the clock.
  class Call {
   public:
    Call(CallWatch& watch, const char* operation, std::string_view folder, std::string_view name = {});
    ~Call() { end(0); }
    Call(const Call&) = delete;
    int end(int error_number);  // returns that number

   private:
    friend class CallWatch;
    std::string describe() const;

    CallWatch& watch_;
    const char* const operation_;
    const std::string_view folder_, name_;
    const int64_t began_ns_;
    int64_t next_line_ns_ = kSlowCallNs;  // its age then
    bool has_ended_ = false;
    Call *before_ = nullptr, *after_ = nullptr;  // in the watch's list
  };

  // Logs calls that have not returned after 5, 10, 20, 40 s and so on. What the thread does.
  void look();
  // Calls older than kSlowCallNs, the oldest first, at most `most`.
  std::vector<SlowCall> slow(size_t most) const;
  int64_t oldest_ns() const;  // the age of the oldest call under way; 0 without one

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

int64_t steady_now_ns();

}  // namespace shoal::storage
