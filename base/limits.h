// Bounds that several folders have in common.
#pragma once

#include <cstddef>

namespace shoal::base {

inline constexpr size_t kMaxJobIdBytes = 512;  // of a job id: on disk, on the wire and on the local socket

}  // namespace shoal::base
