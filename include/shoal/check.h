// SHOAL_CHECK: an invariant of this program, kept in release builds. Failing it is our own fault and ends the
// process with file, line and condition; what a peer, a file or a caller can cause is a Status instead.
#pragma once

namespace shoal {
[[noreturn]] void check_failed(const char* file, int line, const char* condition);
}

#define SHOAL_CHECK(condition)                               \
  do {                                                       \
    if (!(condition)) [[unlikely]]                           \
      ::shoal::check_failed(__FILE__, __LINE__, #condition); \
  } while (false)
