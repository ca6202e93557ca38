// A launcher's reports about its trainers, through a pipe that delivers them in pieces.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "actors/node/launcher_reports.h"
#include "base/owned_fd.h"
#include "local/socket/socket.h"

namespace shoal::actors {
namespace {

class ALauncher : public ::testing::Test {
 protected:
  ALauncher() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) std::abort();
    from_ = base::OwnedFd(ends[0]);
    to_ = base::OwnedFd(ends[1]);
  }
  void say(const std::string& text) {
    ASSERT_EQ(write(to_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  std::vector<std::string> received(LauncherReports& reports) {
    std::vector<std::string> out;
    reports.receive([&](const LauncherReports::Ended& message) {
      out.push_back(std::to_string(message.rank) + ": " + message.how);
      return true;
    });
    return out;
  }

  base::OwnedFd from_, to_;
};

using Lines = std::vector<std::string>;

TEST_F(ALauncher, IsHeardLineByLineHoweverItsWordsCome) {
  LauncherReports reports(from_.get());
  EXPECT_EQ(received(reports), Lines());
  const std::string line = launcher_line({12, "signal 9 (Killed)"});
  say(line.substr(0, 8));
  EXPECT_EQ(received(reports), Lines());
  say(line.substr(8) + launcher_line({3, "exit status 1"}));
  EXPECT_EQ(received(reports), (Lines{"12: signal 9 (Killed)", "3: exit status 1"}));
  EXPECT_EQ(received(reports), Lines());
  to_ = base::OwnedFd();
  EXPECT_EQ(received(reports), Lines());
}

TEST_F(ALauncher, IsHeardAgainUntilItIsTaken) {
  LauncherReports reports(from_.get());
  say(launcher_line({1, "exit status 0"}) + launcher_line({2, "exit status 0"}));
  reports.receive([](const LauncherReports::Ended& message) { return message.rank == 2; });
  EXPECT_EQ(received(reports), Lines{"1: exit status 0"});
}

TEST_F(ALauncher, SaysNothingInWordsThatAreNotKnown) {
  LauncherReports reports(from_.get());
  say("began 3 now\nended\nended x y\nended 4\nended 99999999999 x\nended 4 exit status 2\n");
  EXPECT_EQ(received(reports), Lines{"4: exit status 2"});
}

TEST(NoLauncher, SaysNothing) {
  LauncherReports reports(-1);
  reports.receive([](const LauncherReports::Ended&) {
    ADD_FAILURE();
    return true;
  });
}

}  // namespace
}  // namespace shoal::actors
