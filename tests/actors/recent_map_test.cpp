#include "actors/recent_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace shoal::actors {
namespace {

TEST(RecentMap, ForgetsTheOneThatWasPutFirstHoweverManyArePut) {
  RecentMap<int, std::string> map(3);
  // Keys that fall, so that their order is not that of age.
  for (int put = 0; put < 20; ++put) {
    map.put(100 - put, std::to_string(put));
    EXPECT_EQ(map.size(), std::min<size_t>(3, static_cast<size_t>(put) + 1));
    for (int before = 0; before <= put; ++before) {
      EXPECT_EQ(map.contains(100 - before), put - before < 3) << put << ", " << before;
    }
    EXPECT_EQ(map.find(100 - put)->second, std::to_string(put));
  }
}

TEST(RecentMap, AKeyThatIsThereKeepsItsValueAndItsPlace) {
  RecentMap<int, std::string> map(2);
  map.put(1, "first");
  map.put(2, "second");
  map.put(1, "again");
  EXPECT_EQ(map.find(1)->second, "first");
  map.put(3, "third");
  EXPECT_FALSE(map.contains(1));
  EXPECT_TRUE(map.contains(2));
  EXPECT_TRUE(map.contains(3));
}

}  // namespace
}  // namespace shoal::actors
