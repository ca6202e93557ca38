// The program under increasing limits of address space (ulimit -v). Under each limit it works, or ends with
// one line that states the lack of memory and with the exit status that README.md lists.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "tests/cli/process.h"
#include "tests/golden_copy.h"
#include "tests/temporary_folder.h"

namespace shoal::cli {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

#if defined(SHOAL_ADDRESS_SANITIZER) || defined(SHOAL_THREAD_SANITIZER)
constexpr bool kMayBeLimited = false;  // a sanitizer takes terabytes of addresses
#else
constexpr bool kMayBeLimited = true;
#endif

constexpr int kMib = 1024;        // as ulimit counts
constexpr int kLoaderEnds = 127;  // the program has not begun: its libraries find no room

class ShortMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kMayBeLimited) GTEST_SKIP() << "a sanitizer needs more addresses than any limit leaves";
  }
  std::vector<std::string> under(int kib, std::vector<std::string> command) const {
    command.insert(command.begin(),
                   {"/bin/sh", "-c", "ulimit -c 0; ulimit -v " + std::to_string(kib) + " && exec \"$@\"",
                    "sh", SHOAL_PROGRAM});
    return command;
  }
  ProcessOptions options() const {
    return {.environment = {{"SHOAL_RUNTIME_DIR", folder_.path() + "/runtime"}}};
  }
  // True: the program worked. lacks: what its status must be if it lacked memory.
  static bool expect_works_or_says_why(const ProcessEnd& end, int works, testing::Matcher<int> lacks,
                                       const std::string& what) {
    SCOPED_TRACE(what + ": " + end.err);
    EXPECT_THAT(end.err, Not(HasSubstr("terminate called")));
    const bool is_loader = end.err.find("error while loading shared libraries") != std::string::npos;
    const bool says_why = end.err.find("shoal: out of memory") != std::string::npos;
    if (!is_loader && !says_why) {
      EXPECT_EQ(end.status, works);
      return true;
    }
    EXPECT_THAT(end.status, AnyOf(lacks, kLoaderEnds));
    return false;
  }
  static void expect_one_line(const std::string& errors) {
    size_t lines = 0;
    for (size_t at = 0; (at = errors.find("shoal: out of memory", at)) != std::string::npos; ++at) ++lines;
    EXPECT_LE(lines, 1u) << errors;
  }
  TemporaryFolder folder_;
};

TEST_F(ShortMemory, IsSaidByEachCommandThatReads) {
  const GoldenCopy golden;
  const std::string root = golden.root();
  struct Case {
    std::vector<std::string> command;
    int works;
  };
  const std::vector<Case> cases = {{{"ls", root}, 0},
                                   {{"show", root}, 0},
                                   {{"verify", root, "--no-record"}, 0},
                                   {{"rebuild", root, "--catalog", folder_.path() + "/catalog"}, 0},
                                   {{"gc", root, "--dry-run"}, 0},
                                   {{"status", root}, 1},
                                   {{"settings", root}, 0}};
  for (const Case& each : cases) {
    int worked = 0;
    for (int kib = 40 * kMib; kib <= 400 * kMib; kib += 18 * kMib) {
      const ProcessEnd end = run_process(under(kib, each.command), options());
      worked += expect_works_or_says_why(end, each.works, 2, each.command[0] + " at " + std::to_string(kib));
      expect_one_line(end.err);
    }
    EXPECT_GT(worked, 0) << each.command[0];
  }
}

TEST_F(ShortMemory, IsSaidByANode) {
  int worked = 0;
  for (int kib = 64 * kMib; kib <= 1024 * kMib; kib += 48 * kMib) {
    const std::string rung = std::to_string(kib);
    Process node(under(kib, {"node", "--create-root", "--root", folder_.path() + "/root", "--job-id", rung}),
                 options());
    if (node.wait_for_errors("ready, coordinating")) node.send_signal(SIGTERM);
    const ProcessEnd end = node.wait();
    worked += expect_works_or_says_why(end, 0, 1, "at " + rung);
    expect_one_line(end.err);
  }
  EXPECT_GT(worked, 0);
}

// The node reports it, perhaps at each restart.
TEST_F(ShortMemory, IsSaidByALauncherOrItsNode) {
  int worked = 0;
  for (int kib = 64 * kMib; kib <= 1024 * kMib; kib += 48 * kMib) {
    const ProcessEnd end = run_process(
        under(kib, {"launch", "--create", "--root", folder_.path() + "/root", "--", "/bin/true"}), options());
    // 0: only the node lacked memory, and the trainer ended well before the node was needed again.
    worked += expect_works_or_says_why(end, 0, AnyOf(0, 1), "at " + std::to_string(kib));
  }
  EXPECT_GT(worked, 0);
}

}  // namespace
}  // namespace shoal::cli
