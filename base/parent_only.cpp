#include "base/parent_only.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>

namespace shoal::base {

namespace {

// A descriptor + 1; 0: free.
std::array<std::atomic<int>, 256> guarded;

// Runs in the child, where other threads are gone: only calls that are safe in a signal handler.
void replace_in_child() {
  int null = -1;
  for (std::atomic<int>& each : guarded) {
    const int fd = each.exchange(0) - 1;
    if (fd < 0) continue;
    if (null < 0) null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || ::dup3(null, fd, O_CLOEXEC) < 0) ::close(fd);
  }
  if (null >= 0) ::close(null);
}

}  // namespace

ParentOnly::ParentOnly(int fd) {
  static std::once_flag once;
  std::call_once(once, [] { (void)::pthread_atfork(nullptr, nullptr, replace_in_child); });
  for (size_t slot = 0; slot < guarded.size(); ++slot) {
    int free = 0;
    if (!guarded[slot].compare_exchange_strong(free, fd + 1)) continue;
    slot_ = static_cast<int>(slot);
    return;
  }
}

ParentOnly::~ParentOnly() {
  if (slot_ >= 0) guarded[static_cast<size_t>(slot_)] = 0;
}

}  // namespace shoal::base
