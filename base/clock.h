// The clocks of this machine, in nanoseconds.
#pragma once

#include <chrono>
#include <cstdint>

namespace shoal::base {

// Since an arbitrary moment; is never set back.
inline int64_t steady_now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// Since 1970; an administrator or NTP may set it.
inline int64_t unix_now_ns() {
  return std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace shoal::base
