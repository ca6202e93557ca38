#include "base/owned_fd.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace shoal::base {

namespace {

int above_standard(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int above = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int number = errno;
  ::close(fd);
  errno = number;
  return above;
}

}  // namespace

OwnedFd::OwnedFd(int fd) : fd_(above_standard(fd)) {}

void OwnedFd::reset(int fd) {
  const int before = std::exchange(fd_, above_standard(fd));
  if (before >= 0) ::close(before);
}

void open_standard_descriptors() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDWR);  // not inherited ones are replaced
  if (fd > STDERR_FILENO) ::close(fd);
}

}  // namespace shoal::base
