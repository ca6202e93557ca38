#include "actors/node/lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"

namespace shoal::testing {
namespace {

TEST(NodeLock, IsHeldOnceAndNamesItsHolderAndItsFileStays) {
  char path[] = "/tmp/shoal-lock-XXXXXX";
  std::string folder = mkdtemp(path), file = folder + "/lock";
  auto first = actors::NodeLock::take(file, "/root");
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  std::optional<actors::NodeLock> held(std::move(*first));
  Status second = actors::NodeLock::take(file, "/root").status();
  EXPECT_EQ(second.code(), Code::already_exists);
  EXPECT_THAT(second.message(), ::testing::HasSubstr("pid " + std::to_string(getpid())));
  held.reset();
  EXPECT_TRUE(std::filesystem::exists(file));
  EXPECT_TRUE(actors::NodeLock::take(file, "/root").ok());
  EXPECT_EQ(actors::NodeLock::take(folder + "/absent/lock", "/root").status().code(), Code::io);
  std::filesystem::remove_all(folder);
}

namespace fs = std::filesystem;
constexpr std::chrono::hours kLong{24 * 30};
const std::string kOwn = "0123456789abcdef", kOther = "aaaaaaaaaaaaaaaa", kThird = "00112233445566ff";

class UnusedLocks : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  void make(const std::string& name, bool is_old = true) const {
    std::ofstream(path(name)) << "1\n";
    if (is_old) fs::last_write_time(path(name), fs::file_time_type::clock::now() - 2 * kLong);
  }
  // The names that the node of kOwn leaves.
  std::vector<std::string> left() const {
    std::vector<std::string> removed, names;
    const Status status = actors::remove_unused_locks(folder_.path(), path(kOwn + ".lock"),
                                                      std::chrono::system_clock::now() - kLong, &removed);
    EXPECT_TRUE(status.ok()) << status.to_string();
    for (const auto& entry : fs::directory_iterator(folder_.path())) names.push_back(entry.path().filename());
    for (const std::string& name : removed) EXPECT_FALSE(fs::exists(name)) << name;
    std::sort(names.begin(), names.end());
    return names;
  }

  TemporaryFolder folder_;
};

// Regression: each root that a host ever used left a lock file and a log for good.
TEST_F(UnusedLocks, GoWithTheirLogs) {
  const std::string reader = kThird + "-reader-" + kOther;
  for (const std::string& stem : {kOther, reader}) {
    make(stem + ".lock");
    make(stem + ".log");
  }
  make(kThird + ".lock");
  EXPECT_THAT(left(), ::testing::IsEmpty());
}

TEST_F(UnusedLocks, OfThisNodeAndOfRecentOnesStay) {
  make(kOwn + ".lock");
  make(kOwn + ".log");
  make(kOther + ".lock", false);
  make(kOther + ".log");
  EXPECT_THAT(left(), ::testing::SizeIs(4));
}

TEST_F(UnusedLocks, ThatANodeHoldsStay) {
  const auto held = actors::NodeLock::take(path(kOther + ".lock"), "/root");
  ASSERT_TRUE(held.ok());
  fs::last_write_time(path(kOther + ".lock"), fs::file_time_type::clock::now() - 2 * kLong);
  make(kOther + ".log");
  EXPECT_THAT(left(), ::testing::ElementsAre(kOther + ".lock", kOther + ".log"));
}

// A runtime folder may have whatever a user puts there.
TEST_F(UnusedLocks, AreNotFilesWithOtherNames) {
  for (const char* name : {"yarn.lock", "aaaaaaaaaaaaaaa.lock", "aaaaaaaaaaaaaaag.lock",
                           "aaaaaaaaaaaaaaaa.log", "aaaaaaaaaaaaaaaa-reader-b.lock"}) {
    make(name);
  }
  fs::create_symlink(path("yarn.lock"), path(kOther + ".lock"));
  EXPECT_THAT(left(), ::testing::SizeIs(6));
}

// A node that opened the file before another one removed it must not hold a lock that nobody else sees.
TEST_F(UnusedLocks, AreMadeAgainByTheNextNode) {
  make(kOther + ".lock");
  EXPECT_THAT(left(), ::testing::IsEmpty());
  const auto held = actors::NodeLock::take(path(kOther + ".lock"), "/root");
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(actors::NodeLock::take(path(kOther + ".lock"), "/root").status().code(), Code::already_exists);
  fs::remove(path(kOther + ".lock"));
  EXPECT_TRUE(actors::NodeLock::take(path(kOther + ".lock"), "/root").ok())
      << "of the file that has the name";
}

}  // namespace
}  // namespace shoal::testing
