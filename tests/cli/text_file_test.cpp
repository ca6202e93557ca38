// Files that commands write: no existing file is overwritten, and no unwritten file is reported as written.
#include "cli/text_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/temporary_folder.h"

namespace shoal::cli {
namespace {

using ::testing::HasSubstr;

TEST(TextFile, TakesANameThatNothingHas) {
  TemporaryFolder folder;
  const std::string stem = folder.path() + "/violation-seed1";
  EXPECT_EQ(free_name(stem, ".toml"), stem + ".toml");
  ASSERT_TRUE(write_text(stem + ".toml", "a").ok());
  EXPECT_EQ(free_name(stem, ".toml"), stem + "-2.toml");
  std::filesystem::create_symlink("/nowhere/at/all", stem + "-2.toml");
  EXPECT_EQ(free_name(stem, ".toml"), stem + "-3.toml") << "a link into nowhere is there, too";
}

TEST(TextFile, SaysWhyItIsNotWritten) {
  TemporaryFolder folder;
  EXPECT_THAT(write_text("/dev/full", "a").message(), HasSubstr("cannot write /dev/full: No space"));
  EXPECT_THAT(check_writable("/nowhere/a").message(), HasSubstr("cannot write /nowhere/a: No such"));
  EXPECT_TRUE(check_writable(folder.path() + "/a").ok());
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/a"));
}

}  // namespace
}  // namespace shoal::cli
