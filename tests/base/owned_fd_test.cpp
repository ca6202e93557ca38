#include "base/owned_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace shoal::base {
namespace {

int new_fd() {
  return ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}

bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) != -1;
}

TEST(OwnedFd, ClosesItsDescriptorAtItsEnd) {
  int fd = -1;
  {
    OwnedFd owner(new_fd());
    fd = owner.get();
    ASSERT_TRUE(is_open(fd));
  }
  EXPECT_FALSE(is_open(fd));
}

TEST(OwnedFd, ClosesTheDescriptorThatItHadBefore) {
  OwnedFd owner(new_fd()), other(new_fd());
  const int first = owner.get(), second = other.get();
  owner = std::move(other);
  EXPECT_FALSE(is_open(first));
  EXPECT_TRUE(is_open(second));
  EXPECT_EQ(owner.get(), second);
  owner.reset();
  EXPECT_FALSE(is_open(second));
  EXPECT_FALSE(owner.valid());
}

TEST(OwnedFd, MovesToOneOwner) {
  OwnedFd owner(new_fd());
  const int fd = owner.get();
  OwnedFd second(std::move(owner));
  EXPECT_FALSE(owner.valid());  // NOLINT(bugprone-use-after-move): the state after a move is promised
  OwnedFd& itself = second;
  second = std::move(itself);
  EXPECT_EQ(second.get(), fd);
  EXPECT_TRUE(is_open(fd));
}

TEST(OwnedFd, LeavesAReleasedDescriptorOpen) {
  int fd = -1;
  {
    OwnedFd owner(new_fd());
    fd = owner.release();
  }
  EXPECT_TRUE(is_open(fd));
  OwnedFd(fd).reset();
  EXPECT_FALSE(is_open(fd));
}

}  // namespace
}  // namespace shoal::base
