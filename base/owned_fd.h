// OwnedFd: owns a file descriptor.
#pragma once

#include <utility>

namespace shoal::base {

// Closes its descriptor when it is destroyed or gets another one. -1: it owns none.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
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

}  // namespace shoal::base
