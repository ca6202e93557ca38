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

// Regression: with standard output closed, a slab got its number, and what the trainer printed went into it.
TEST(OwnedFd, IsNeverAStandardDescriptor) {
  for (const int standard : {0, 1, 2}) {
    const OwnedFd saved(::fcntl(standard, F_DUPFD_CLOEXEC, 3));
    ASSERT_TRUE(saved.valid());
    ::close(standard);
    const int opened = new_fd();
    const OwnedFd owner(opened);
    OwnedFd other;
    other.reset(new_fd());
    const bool is_closed = !is_open(standard);
    ASSERT_EQ(::dup2(saved.get(), standard), standard);
    EXPECT_EQ(opened, standard);
    EXPECT_TRUE(is_closed);
    EXPECT_GT(owner.get(), 2);
    EXPECT_GT(other.get(), 2);
  }
}

TEST(StandardDescriptors, AreOpenedWhereTheyAreClosed) {
  const OwnedFd saved(::fcntl(1, F_DUPFD_CLOEXEC, 3));
  ::close(1);
  open_standard_descriptors();
  const bool opened = is_open(1);
  ASSERT_EQ(::dup2(saved.get(), 1), 1);
  EXPECT_TRUE(opened);
}

}  // namespace
}  // namespace shoal::base
