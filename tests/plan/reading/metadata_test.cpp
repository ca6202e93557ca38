// The numbers and the order of attempts, and the user metadata of a save.
#include "shoal/metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace shoal::plan {
namespace {

using ::testing::HasSubstr;

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

std::string refusal(const UserMetadata& user) {
  const Status status = validate_user_metadata(user);
  EXPECT_EQ(status.code(), status.ok() ? Code::ok : Code::invalid_argument);
  return status.message();
}

TEST(MetadataOfASave, IsTextWithinItsBounds) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({{"config", "a: 1\n\tb: 2\r\n"}, {"caf\xc3\xa9", ""}}), "");
  EXPECT_EQ(refusal({{std::string(kMaxUserKeyBytes, 'k'),
                      std::string(kMaxUserMetadataBytes - kMaxUserKeyBytes, 'v')}}),
            "");
  EXPECT_THAT(refusal({{"", "v"}}), HasSubstr("key ''"));
  EXPECT_THAT(refusal({{"a\nb", "v"}}), HasSubstr("key 'a b'"));
  EXPECT_THAT(refusal({{std::string(kMaxUserKeyBytes + 1, 'k'), "v"}}), HasSubstr("1 to 256 bytes"));
  for (const char* bad : {"\xff", "\x01", "\x1b[31m", "\x7f"}) {
    EXPECT_THAT(refusal({{"run", bad}}), HasSubstr("the value of 'run' is not UTF-8 text"));
  }
  EXPECT_THAT(refusal({{"k", std::string(kMaxUserMetadataBytes, 'v')}}),
              HasSubstr("take 16385 bytes, at most 16384"));
  UserMetadata many;
  for (size_t i = 0; i <= kMaxUserKeys; ++i) many["k" + std::to_string(i)] = "v";
  EXPECT_THAT(refusal(many), HasSubstr("65 keys are given: at most 64"));
}

TEST(MetadataOfASave, ThatDiffersIsNamedWithBothRanksAndTheFirstKey) {
  auto difference = [](const UserMetadata& a, const UserMetadata& b) {
    return check_same_user_metadata(2, a, 7, b).message();
  };
  const UserMetadata one = {{"a", "1"}, {"c", "3"}};
  EXPECT_EQ(difference(one, one), "");
  EXPECT_THAT(difference(one, {{"a", "1"}, {"c", "4"}}), HasSubstr("'c' is '3' on rank 2 and '4' on rank 7"));
  EXPECT_THAT(difference(one, {{"a", "1"}, {"b", "2"}, {"c", "3"}}),
              HasSubstr("'b' is missing on rank 2 and '2' on rank 7"));
  EXPECT_THAT(difference(one, {{"c", "4"}}), HasSubstr("'a' is '1' on rank 2 and missing on rank 7"));
  EXPECT_THAT(difference({}, one), HasSubstr("'a' is missing on rank 2"));
}

}  // namespace
}  // namespace shoal::plan
