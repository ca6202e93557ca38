// OwnedFd: owns a file descriptor, which is never one of the standard ones.
//
// A process may have closed its standard input, output or error. The next descriptor that it opens then has
// that number, and what the process prints would go into it: into a slab in shared memory, or a socket.
#pragma once

#include <utility>

namespace shoal::base {

// Closes its descriptor when it is destroyed or gets another one. -1: it owns none. A descriptor 0, 1 or 2
// that it is given is replaced by a duplicate above them; if there is none left, it owns none, and errno is
// EMFILE.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd);
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.release()) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~OwnedFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }  // the caller closes it
  void reset(int fd = -1);                          // owns `fd` from now on; closes the one before

 private:
  int fd_ = -1;
};

// Opens /dev/null as each standard descriptor that is closed. A program calls it first of all, before it
// opens anything.
void open_standard_descriptors();

}  // namespace shoal::base
