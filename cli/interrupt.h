// Interrupts: lets a long command that is interrupted print its results so far.
#pragma once

#include <atomic>

namespace shoal::cli {

// While an object lives, it records the first SIGINT or SIGTERM. A second signal ends the process as usual.
// Only one object may exist at a time.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;

  static constexpr int kExitStatus = 128;  // plus the number of the signal, as shells report it
  // The number of the recorded signal; 0: none. Any thread.
  static int signal_number();
};

}  // namespace shoal::cli
