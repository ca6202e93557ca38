#include "base/process_state.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

namespace shoal::base {

// /proc/PID/stat is "PID (NAME) STATE ...", and the name may contain anything.
bool is_process_stopped(int32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return false;
  const char state = text[name_end + 2];
  return state == 'T' || state == 't';
}

OwnedFd watch_process(int32_t pid) {
  return OwnedFd(pid > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)) : -1);
}

bool outlives(int32_t pid, int patience_ms) {
  const OwnedFd process = watch_process(pid);
  if (!process.valid()) return false;
  pollfd ends{process.get(), POLLIN, 0};
  return ::poll(&ends, 1, patience_ms) == 0;
}

}  // namespace shoal::base
