#include "base/edit_distance.h"

#include <gtest/gtest.h>

#include <string>

namespace shoal::base {
namespace {

TEST(EditDistance, CountsInsertedRemovedAndReplacedBytes) {
  EXPECT_EQ(edit_distance("verify", "verify"), 0u);
  EXPECT_EQ(edit_distance("list", "ls"), 2u);
  EXPECT_EQ(edit_distance("statsu", "status"), 2u);
  EXPECT_EQ(edit_distance("", "gc"), 2u);
  EXPECT_EQ(edit_distance("rn", "rm"), 1u);
}

TEST(EditDistance, ComparesTheBeginningsOfLongNames) {
  EXPECT_EQ(edit_distance(std::string(100, 'a') + "b", std::string(100, 'a') + "c"), 0u);
}

TEST(NearestName, IsTheMostSimilarOneIfThatIsSimilarEnough) {
  const std::vector<std::string> names = {"keep-last", "keep-every", "ports"};
  EXPECT_EQ(nearest_name("keep-lats", names), "keep-last");
  EXPECT_EQ(nearest_name("port", names), "ports");
  EXPECT_EQ(nearest_name("colour", names), std::nullopt);
  EXPECT_EQ(nearest_name("keep-last", {}), std::nullopt);
}

}  // namespace
}  // namespace shoal::base
