#include "base/descriptors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/owned_fd.h"

namespace shoal::base {

Result<DescriptorLimit> descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return Status(Code::io,
                  fmt::format("cannot read the limit of file descriptors: {}", std::strerror(errno)));
  }
  return DescriptorLimit{limit.rlim_cur, limit.rlim_max};
}

Result<DescriptorLimit> raise_descriptor_limit(uint64_t needed) {
  SHOAL_ASSIGN_OR_RETURN(DescriptorLimit limit, descriptor_limit());
  uint64_t wanted = std::min(needed, limit.hard);
  if (limit.soft >= wanted) return limit;
  rlimit raised{wanted, limit.hard};
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit.soft = wanted;
  return limit;
}

bool is_out_of_descriptors(int error) {
  return error == EMFILE || error == ENFILE;
}

Status out_of_descriptors() {
  auto limit = descriptor_limit();
  return Status(Code::busy, fmt::format("this process has no file descriptor left (limit {}; {})",
                                        limit.ok() ? limit->soft : 0, kDescriptorRemedy));
}

OwnedFd SpareDescriptor::accept_in_place(int listener) {
  fd_.reset();
  OwnedFd accepted;
  do {
    accepted.reset(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  } while (!accepted.valid() && (errno == EINTR || errno == ECONNABORTED));
  if (!accepted.valid()) refill();
  return accepted;
}

void SpareDescriptor::refill() {
  if (!fd_.valid()) fd_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

}  // namespace shoal::base
