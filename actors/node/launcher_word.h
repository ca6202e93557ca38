// LauncherWord: what whoever starts the trainers of this host says of them, a line each: "ended RANK HOW".
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>

#include "shoal/roster.h"

namespace shoal::actors {

inline constexpr size_t kMaxLauncherBytes = size_t{1}
                                            << 20;  // of lines that are not complete, or not heard yet

class LauncherWord {
 public:
  struct Ended {
    Rank rank = 0;
    std::string how;  // "exit status 3"
  };

  // Of a pipe or socket that does not block; -1: nobody says anything. Not closed.
  explicit LauncherWord(int fd) : fd_(fd) {}

  // Reads what has come, and hands on what `take` has not taken yet; true: it has now. Lines that say
  // something else are passed over, so that an older node serves a newer launcher.
  void hear(const std::function<bool(const Ended& said)>& take);

 private:
  void read_lines();
  void take_line(const std::string& line);

  int fd_;
  std::string text_;
  std::deque<Ended> said_;
};

// The line that LauncherWord reads.
std::string launcher_line(const LauncherWord::Ended& said);

}  // namespace shoal::actors
