// What the kernel says about another process of this host.
#pragma once

#include <cstdint>

#include "base/owned_fd.h"

namespace shoal::base {

// Whether a signal (SIGSTOP) or a debugger has stopped the process. False also if it does not exist, or is
// not visible from here.
bool is_process_stopped(int32_t pid);

// A descriptor that becomes readable when the process ends, also if nobody collects its status. None if the
// process does not exist or is not visible from here, or if pid is 0.
OwnedFd watch_process(int32_t pid);
// Whether the process is still alive after `patience_ms`, at most: returns as soon as it ends. False also if
// it is not visible from here.
bool outlives(int32_t pid, int patience_ms);

}  // namespace shoal::base
