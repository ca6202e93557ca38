// Bounds that several folders share.
#pragma once

#include <cstddef>

namespace shoal::base {

inline constexpr size_t kMaxJobIdBytes = 512;  // on disk, in messages between nodes and on the local socket

}  // namespace shoal::base
