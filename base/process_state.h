// What the kernel says about another process of this host.
#pragma once

#include <cstdint>

namespace shoal::base {

// Whether a signal (SIGSTOP) or a debugger has stopped the process. False also if it does not exist, or is
// not visible from here.
bool is_process_stopped(int32_t pid);

}  // namespace shoal::base
