// Work that several threads share.
#pragma once

#include <cstddef>
#include <functional>

namespace shoal::base {

// work(i) for all i below `count`, each once: by the caller's thread and by as many more as make `threads`,
// but for those that the system does not give. What `work` throws ends the process (std::terminate): the
// other threads still use what the caller's stack holds.
void for_each_by_threads(size_t count, size_t threads, const std::function<void(size_t)>& work);

}  // namespace shoal::base
