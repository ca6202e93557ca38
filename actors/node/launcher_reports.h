// LauncherReports: reads what the launcher of this host's trainers reports about them, one line each: "ended
// RANK HOW".
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>

#include "shoal/roster.h"

namespace shoal::actors {

// Bound of incomplete lines and of reports that nobody has taken yet.
inline constexpr size_t kMaxLauncherBytes = size_t{1} << 20;

class LauncherReports {
 public:
  struct Ended {
    Rank rank = 0;
    std::string how;  // "exit status 3"
  };

  // Reads a pipe or socket that does not block, and does not close it; -1: there is no launcher.
  explicit LauncherReports(int fd) : fd_(fd) {}

  // Reads what has come, and offers `take` each report that it has not taken yet; `take` returns true if it
  // takes it. Ignores lines that it does not know, so that an older node works with a newer launcher.
  void receive(const std::function<bool(const Ended& message)>& take);

 private:
  void read_lines();
  void take_line(const std::string& line);

  int fd_;
  std::string text_;
  std::deque<Ended> pending_;
};

// The line that LauncherReports reads.
std::string launcher_line(const LauncherReports::Ended& message);

}  // namespace shoal::actors
