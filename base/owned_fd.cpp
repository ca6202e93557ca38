#include "base/owned_fd.h"

#include <unistd.h>

namespace shoal::base {

void OwnedFd::reset(int fd) {
  const int before = std::exchange(fd_, fd);
  if (before >= 0) ::close(before);
}

}  // namespace shoal::base
