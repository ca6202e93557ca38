// SHOAL_CHECK: an assertion that release builds keep. A failure is a defect of Shoal: the process prints
// file, line and condition, and ends. Errors that a peer, a file or a caller can cause are a Status instead.
#pragma once

namespace shoal {
[[noreturn]] void check_failed(const char* file, int line, const char* condition);
}

#define SHOAL_CHECK(condition)                               \
  do {                                                       \
    if (!(condition)) [[unlikely]]                           \
      ::shoal::check_failed(__FILE__, __LINE__, #condition); \
  } while (false)
