#include "cli/launch/restart_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace shoal::cli {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

// Regression: the sixth death in a month of training ended the job.
TEST(RestartLimit, LetsANodeDieOnceADayForAMonth) {
  RestartLimit limit;
  RestartLimit::Time now{};
  for (int day = 0; day < 30; ++day, now += hours(24)) {
    EXPECT_EQ(limit.next(now), seconds(0)) << day;
    limit.on_ready();
  }
}

// Regression: a node that took two minutes to fail was started again for ever, and its trainers hung.
TEST(RestartLimit, EndsALoopOfNodesThatNeverBecomeReady) {
  RestartLimit limit;
  RestartLimit::Time now{};
  std::vector<int64_t> pauses;
  for (int i = 0; i < 20; ++i, now += minutes(5)) {
    if (auto pause = limit.next(now)) pauses.push_back(pause->count());
  }
  EXPECT_THAT(pauses, ::testing::ElementsAre(0, 1, 2, 4, 4));
  EXPECT_EQ(limit.describe(), "5 of 5 times since a node was ready");
}

TEST(RestartLimit, ForgetsThoseOnceReady) {
  RestartLimit limit;
  RestartLimit::Time now{};
  for (uint32_t i = 0; i < kMaxNodeRestarts; ++i, now += minutes(5)) ASSERT_TRUE(limit.next(now)) << i;
  limit.on_ready();
  EXPECT_EQ(limit.next(now), seconds(1)) << "with the one that lies within the window";
}

TEST(RestartLimit, EndsALoopAndWaitsLongerEachTime) {
  RestartLimit limit;
  RestartLimit::Time now{};
  std::vector<int64_t> pauses;
  while (auto pause = limit.next(now)) {
    pauses.push_back(pause->count());
    now += *pause;
  }
  EXPECT_THAT(pauses, ::testing::ElementsAre(0, 1, 2, 4, 4));
  EXPECT_EQ(limit.describe(), "5 of 5 times in 10 minutes");
}

TEST(RestartLimit, CountsOnlyWhatLiesWithinTheWindow) {
  RestartLimit limit;
  const RestartLimit::Time begin{};
  for (uint32_t i = 0; i < kMaxNodeRestarts; ++i) EXPECT_TRUE(limit.next(begin + minutes(i)));
  EXPECT_EQ(limit.next(begin + kNodeRestartWindow - seconds(1)), std::nullopt);
  limit.on_ready();
  EXPECT_EQ(limit.next(begin + kNodeRestartWindow), seconds(4)) << "four are left in the window";
}

}  // namespace
}  // namespace shoal::cli
