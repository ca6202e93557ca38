// ProgressLine: shows the progress of a long command on stderr: one line that is redrawn on a terminal, plain
// lines elsewhere.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace shoal::cli {

class ProgressLine {
 public:
  static constexpr double kSecondsBeforeTimeLeft = 0.5;  // before this time, the rate is not meaningful

  // Starts at once on a terminal. Elsewhere it writes only if `always` is set, once a second and at the end.
  // `line` returns the text after this many seconds; it is called on another thread.
  using Line = std::function<std::string(double seconds)>;
  ProgressLine(Line line, bool always);
  // Shows the number of bytes done. `bytes_done` must outlive the object.
  ProgressLine(std::string title, uint64_t bytes_total, const std::atomic<uint64_t>& bytes_done, bool always);
  ~ProgressLine() { finish(); }
  ProgressLine(const ProgressLine&) = delete;

  // Removes the line from the terminal, or writes the last one. Further calls do nothing.
  void finish();
  // "verify: 1.5 GiB of 4 GiB (37 %), 512 MiB/s, 5.0 s left"
  static std::string text(const std::string& title, uint64_t done, uint64_t total, double seconds);

 private:
  enum class Kind { silent, terminal, lines };
  void run();
  void draw() const;

  const Line line_;
  const std::chrono::steady_clock::time_point start_;
  const Kind kind_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace shoal::cli
