#include "base/process_state.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace shoal::base {
namespace {

TEST(ProcessState, ShowsThatAProcessIsStopped) {
  const pid_t child = fork();
  if (child == 0) {
    while (true) pause();
  }
  ASSERT_GT(child, 0);
  EXPECT_FALSE(is_process_stopped(child));
  int how = 0;
  ASSERT_EQ(kill(child, SIGSTOP), 0);
  ASSERT_EQ(waitpid(child, &how, WUNTRACED), child);
  EXPECT_TRUE(is_process_stopped(child));
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, &how, 0), child);
  EXPECT_FALSE(is_process_stopped(child)) << "it has ended";
}

TEST(ProcessState, ShowsThatAProcessHasEndedWhoseStatusNobodyHasCollected) {
  EXPECT_TRUE(outlives(getpid(), 0));
  EXPECT_FALSE(outlives(0, 0)) << "unknown";
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_GT(child, 0);
  EXPECT_FALSE(outlives(child, 10'000));
  int how = 0;
  ASSERT_EQ(waitpid(child, &how, 0), child);
  EXPECT_FALSE(outlives(child, 10'000));
}

}  // namespace
}  // namespace shoal::base
