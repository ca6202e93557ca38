// Attempts: how they are counted, and in which order they stand.
#include "plan/metadata.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

// The attempts of a job that saves these steps in this order.
std::vector<AttemptKey> keys_of(const std::vector<uint64_t>& steps) {
  AttemptCount count;
  std::vector<AttemptKey> keys;
  for (uint64_t step : steps) keys.push_back({1, step, count.next(step)});
  return keys;
}

TEST(Attempts, OfStepsThatAscendAreTheFirst) {
  for (const AttemptKey& key : keys_of({0, 5, 1000})) EXPECT_EQ(key.attempt, 1u);
}

TEST(Attempts, StandInTheOrderInWhichTheyWereBegun) {
  for (const std::vector<uint64_t>& steps :
       {std::vector<uint64_t>{1, 2, 3, 4, 5, 3, 4, 5, 6}, {7, 7, 8, 8}, {9, 8, 7, 0}, {5, 1, 9, 9, 2}}) {
    const std::vector<AttemptKey> keys = keys_of(steps);
    for (size_t i = 1; i < keys.size(); ++i) EXPECT_LT(keys[i - 1], keys[i]) << to_string(keys[i]);
  }
}

TEST(Attempts, OfALaterGenerationStandAboveAllOfAnEarlierOne) {
  EXPECT_LT((AttemptKey{1, 9, 9}), (AttemptKey{2, 1, 1}));
}

}  // namespace
}  // namespace shoal
