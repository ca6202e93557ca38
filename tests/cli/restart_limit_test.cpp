#include "cli/restart_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace shoal {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

// Regression: the sixth death in a month of training ended the job.
TEST(RestartLimit, LetsANodeDieOnceADayForAMonth) {
  RestartLimit limit;
  RestartLimit::Time now{};
  for (int day = 0; day < 30; ++day, now += hours(24)) EXPECT_EQ(limit.next(now), seconds(0)) << day;
}

TEST(RestartLimit, EndsALoopAndWaitsLongerEachTime) {
  RestartLimit limit;
  RestartLimit::Time now{};
  std::vector<int64_t> pauses;
  while (auto pause = limit.next(now)) {
    pauses.push_back(pause->count());
    now += *pause;
  }
  EXPECT_THAT(pauses, testing::ElementsAre(0, 1, 2, 4, 8));
  EXPECT_EQ(limit.count(), kMaxNodeRestarts);
}

TEST(RestartLimit, CountsOnlyWhatLiesWithinTheWindow) {
  RestartLimit limit;
  const RestartLimit::Time begin{};
  for (uint32_t i = 0; i < kMaxNodeRestarts; ++i) EXPECT_TRUE(limit.next(begin + minutes(i)));
  EXPECT_EQ(limit.next(begin + kNodeRestartWindow - seconds(1)), std::nullopt);
  EXPECT_EQ(limit.next(begin + kNodeRestartWindow), seconds(8)) << "four are left in the window";
}

}  // namespace
}  // namespace shoal
