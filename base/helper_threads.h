// Distributes work over several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace shoal::base {

// Calls work(i) once for each i below `count`, on the caller's thread and on further ones, `threads` in all.
// If the system cannot start some of them, the others do the work. Returns when all calls have returned. An
// exception of `work` ends the process (std::terminate), because other threads still use the caller's stack.
void for_each_by_threads(size_t count, size_t threads, const std::function<void(size_t)>& work);

}  // namespace shoal::base
