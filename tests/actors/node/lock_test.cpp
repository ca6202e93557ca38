#include "actors/node/lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

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

}  // namespace
}  // namespace shoal::testing
