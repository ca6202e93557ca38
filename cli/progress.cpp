#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "shoal/bytes.h"

namespace shoal::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kRedrawInterval{200};
constexpr std::chrono::milliseconds kLineInterval{1000};

}  // namespace

ProgressLine::ProgressLine(Line line, bool always)
    : line_(std::move(line)),
      start_(Clock::now()),
      kind_(isatty(STDERR_FILENO) ? Kind::terminal
            : always              ? Kind::lines
                                  : Kind::silent) {
  if (kind_ != Kind::silent) thread_ = std::thread([this] { run(); });
}

ProgressLine::ProgressLine(std::string title, uint64_t bytes_total, const std::atomic<uint64_t>& bytes_done,
                           bool always)
    : ProgressLine(
          [title = std::move(title), bytes_total, &bytes_done](double seconds) {
            return text(title, bytes_done.load(std::memory_order_relaxed), bytes_total, seconds);
          },
          always) {}

void ProgressLine::finish() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
  if (kind_ == Kind::terminal) fmt::print(stderr, "\r\x1b[K");
  if (kind_ == Kind::lines) draw();
}

void ProgressLine::run() {
  auto interval = kind_ == Kind::terminal ? kRedrawInterval : kLineInterval;
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, interval, [&] { return stop_; })) draw();
}

void ProgressLine::draw() const {
  double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  std::string line = line_(seconds);
  bool is_terminal = kind_ == Kind::terminal;
  // Does not use fmt, which throws if stderr cannot be written.
  line = fmt::format("{}{}{}", is_terminal ? "\r\x1b[K" : "", line, is_terminal ? "" : "\n");
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

std::string ProgressLine::text(const std::string& title, uint64_t done, uint64_t total, double seconds) {
  uint64_t percent = total == 0
                         ? 100
                         : std::min<uint64_t>(100, static_cast<uint64_t>(100.0 * static_cast<double>(done) /
                                                                         static_cast<double>(total)));
  double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  std::string line = fmt::format("{}: {} of {} ({} %), {}/s", title, human_bytes(done), human_bytes(total),
                                 percent, human_bytes(static_cast<uint64_t>(rate)));
  if (done >= total || rate <= 0 || seconds < kSecondsBeforeTimeLeft) return line;
  return line + fmt::format(", {} left", human_seconds(static_cast<double>(total - done) / rate));
}

}  // namespace shoal::cli
