// Interrupts: a long command that is asked to end prints what there is.
#pragma once

#include <atomic>

namespace shoal::cli {

// While it lives, the first SIGINT or SIGTERM is noted; a second one ends the process as ever. One at a time.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;

  // The number of the signal that came; 0: none. Any thread.
  static int signal_number();
};

}  // namespace shoal::cli
