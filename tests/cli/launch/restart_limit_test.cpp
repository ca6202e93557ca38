#include "cli/launch/restart_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace shoal::cli {
namespace {

using namespace std::chrono_literals;

// Regression: the sixth death in a month of training ended the job.
TEST(RestartLimit, LetsANodeDieOnceADayForAMonth) {
  RestartLimit limit;
  RestartLimit::Time now{};
  for (int day = 0; day < 30; ++day, now += 24h) {
    EXPECT_EQ(limit.next(now), 0s) << day;
    limit.on_ready();
  }
}

// Regression: a node that took two minutes to fail was started again for ever, and its trainers hung.
TEST(RestartLimit, EndsALoopOfNodesThatNeverBecomeReady) {
  RestartLimit limit;
  RestartLimit::Time now{};
  std::vector<int64_t> pauses;
  for (int i = 0; i < 20; ++i, now += 5min) {
    if (auto pause = limit.next(now)) pauses.push_back(pause->count());
  }
  EXPECT_THAT(pauses, ::testing::ElementsAre(0, 1, 2, 4, 4));
  EXPECT_EQ(limit.describe(), "5 of 5 times since a node was ready");
}

TEST(RestartLimit, ForgetsThoseOnceReady) {
  RestartLimit limit;
  RestartLimit::Time now{};
  for (uint32_t i = 0; i < kMaxNodeRestarts; ++i, now += 5min) ASSERT_TRUE(limit.next(now)) << i;
  limit.on_ready();
  EXPECT_EQ(limit.next(now), 1s) << "with the one that lies within the window";
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
  for (uint32_t i = 0; i < kMaxNodeRestarts; ++i) EXPECT_TRUE(limit.next(begin + i * 1min));
  EXPECT_EQ(limit.next(begin + kNodeRestartWindow - 1s), std::nullopt);
  limit.on_ready();
  EXPECT_EQ(limit.next(begin + kNodeRestartWindow), 4s) << "four are left in the window";
}

}  // namespace
}  // namespace shoal::cli
