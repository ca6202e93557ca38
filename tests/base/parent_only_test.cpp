#include "base/parent_only.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "base/owned_fd.h"

namespace shoal::base {
namespace {

struct Pair {
  OwnedFd ours, theirs;
};
Pair new_pair() {
  int fds[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  return {OwnedFd(fds[0]), OwnedFd(fds[1])};
}

bool sees_the_end(const OwnedFd& fd) {
  pollfd polled{fd.get(), POLLIN, 0};
  char byte = 0;
  return ::poll(&polled, 1, 0) == 1 && ::read(fd.get(), &byte, 1) == 0;
}

// A child that lives until this process closes the other end of `until`.
pid_t fork_child(Pair& until) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  until.ours.reset();
  char byte = 0;
  (void)!::read(until.theirs.get(), &byte, 1);
  ::_exit(0);
}

TEST(ParentOnly, AChildDoesNotKeepTheDescriptor) {
  for (const bool guards : {true, false}) {
    Pair pair = new_pair(), until = new_pair();
    std::optional<ParentOnly> guard;
    if (guards) guard.emplace(pair.ours.get());
    const pid_t child = fork_child(until);
    guard.reset();
    pair.ours.reset();
    // The child may not have run yet; it ends the descriptor before fork returns there.
    if (guards) {
      pollfd polled{pair.theirs.get(), POLLIN, 0};
      EXPECT_EQ(::poll(&polled, 1, 60'000), 1);
      EXPECT_TRUE(sees_the_end(pair.theirs));
    } else {
      EXPECT_FALSE(sees_the_end(pair.theirs));
    }
    until.ours.reset();
    EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  }
}

TEST(ParentOnly, EndsWithItsObject) {
  Pair pair = new_pair(), until = new_pair();
  std::optional<ParentOnly>(std::in_place, pair.ours.get()).reset();
  const pid_t child = fork_child(until);
  pair.ours.reset();
  EXPECT_FALSE(sees_the_end(pair.theirs));
  until.ours.reset();
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace shoal::base
