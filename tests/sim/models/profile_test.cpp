#include "sim/models/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal::sim {
namespace {

using ::testing::HasSubstr;

const std::string kProfiles = std::string(SHOAL_SOURCE_FOLDER) + "/sim/profiles";

TEST(FindProfile, ListsTheBuiltInProfilesIfThereIsNone) {
  EXPECT_THAT(find_profile("tape", {kProfiles}).status().message(),
              HasSubstr("no profile 'tape'; built-in profiles are lustre, nvme, "));
}

// A program that was copied away from its share/ folder.
TEST(FindProfile, NamesTheFolderInWhichNoProfileIs) {
  EXPECT_THAT(find_profile("nvme", {"/nowhere/share"}).status().message(),
              HasSubstr("the built-in profiles are not in /nowhere/share, so give the path of a .toml file"));
}

}  // namespace
}  // namespace shoal::sim
