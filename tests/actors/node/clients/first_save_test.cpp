#include "actors/node/clients/first_save.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "storage/root/run_root.h"
#include "tests/storage/retention/retention_samples.h"

namespace shoal::actors {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr ClientId kRank0 = 3, kRank1 = 4;

class AFirstSave : public ::testing::Test {
 protected:
  AFirstSave() {
    EXPECT_TRUE(storage::claim_generation(*memory_, "before", storage::nonce_of(1)).ok());
    for (uint64_t step : {30u, 40u, 50u}) storage::commit_sample(*memory_, {1, step, 1});
    EXPECT_TRUE(storage::claim_generation(*memory_, "now", storage::nonce_of(2)).ok());
  }
  // "": no message.
  std::string stated_of(uint64_t step, std::optional<AttemptKey> loaded) {
    auto line = first_save_warning(*memory_, {{2, step, 1}, loaded});
    EXPECT_TRUE(line.ok()) << line.status().to_string();
    return line.ok() ? line->value_or("") : "";
  }

  storage::MemoryStorage memory_;
};

// Regression: step 1 became the latest instead of step 50 without a message.
TEST_F(AFirstSave, OfARunThatLoadedNothingNamesTheCheckpointsThatItPasses) {
  EXPECT_THAT(stated_of(1, std::nullopt),
              HasSubstr("this run saves step 1 without having loaded a checkpoint, but the root has step 50 "
                        "(g1a1), step 40 (g1a1), step 30 (g1a1): this save becomes the latest"));
}

TEST_F(AFirstSave, NamesNoMoreThanABound) {
  for (uint64_t step = 60; step < 70; ++step) storage::commit_sample(*memory_, {1, step, 1});
  EXPECT_THAT(stated_of(1, std::nullopt),
              AllOf(HasSubstr("step 62 (g1a1) and 5 more"), Not(HasSubstr("step 61 (g1a1)"))));
}

TEST_F(AFirstSave, OfARunThatGoesOnFromTheNewestIsQuiet) {
  EXPECT_EQ(stated_of(51, AttemptKey{1, 50, 1}), "");
}

TEST_F(AFirstSave, OfALowerStepThanOneThatWasNeverLoadedNamesBoth) {
  EXPECT_THAT(stated_of(31, AttemptKey{1, 30, 1}),
              HasSubstr("this run loaded step 30 (g1a1) and saves step 31, but the root has step 50 (g1a1), "
                        "step 40 (g1a1), committed later"));
}

// What was saved last is the latest, also where it has a lower step.
TEST_F(AFirstSave, OfARunThatLoadsALatestAfterARollbackIsQuiet) {
  storage::commit_sample(*memory_, {1, 20, 2});
  EXPECT_EQ(stated_of(21, AttemptKey{1, 20, 2}), "");
}

TEST_F(AFirstSave, KnowsWhatOtherNodesOfTheRunHaveLoaded) {
  ASSERT_TRUE(storage::publish_load_choice(*memory_, 2, 1, {true, {1, 50, 1}, storage::nonce_of(3)}).ok());
  EXPECT_EQ(stated_of(51, std::nullopt), "");
}

TEST_F(AFirstSave, IsNoneWhereTheRunHasSavedBefore) {
  storage::commit_sample(*memory_, {2, 1, 1});
  EXPECT_EQ(stated_of(2, std::nullopt), "");
}

TEST_F(AFirstSave, InAnEmptyRootIsQuiet) {
  storage::MemoryStorage empty;
  auto line = first_save_warning(*empty, {{1, 1, 1}, std::nullopt});
  ASSERT_TRUE(line.ok());
  EXPECT_FALSE(line->has_value());
}

class AWatch : public AFirstSave {
 protected:
  // All that is said of these messages.
  std::vector<std::string> watch(const std::function<void(FirstSaveWatch&)>& messages) {
    std::vector<std::string> lines;
    {
      FirstSaveWatch watch(*memory_, 2, [&](const std::string& line) { lines.push_back(line); });
      local::Attach attach;
      attach.rank = 1;
      watch.from_client(kRank1, attach);
      attach.rank = 0;
      watch.from_client(kRank0, attach);
      messages(watch);
    }
    return lines;
  }
  static local::Staged staged(uint64_t step) {
    local::Staged staged;
    staged.step = step;
    staged.attempt = 1;
    return staged;
  }
  static local::Found found(uint32_t request_id, const AttemptKey& key) {
    local::Found found;
    found.request_id = request_id;
    found.checkpoint.key = key;
    return found;
  }
};

TEST_F(AWatch, WarnsOnceOfTheFirstSaveOfRank0) {
  const auto lines = watch([](FirstSaveWatch& watch) {
    watch.from_client(kRank1, staged(7));
    for (uint64_t step : {8u, 9u}) watch.from_client(kRank0, staged(step));
  });
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("saves step 8 without having loaded a checkpoint"));
}

TEST_F(AWatch, IsQuietOfARunThatLoadedByWhicheverRank) {
  EXPECT_THAT(watch([](FirstSaveWatch& watch) {
                watch.to_client(kRank1, found(1, {1, 50, 1}));
                watch.from_client(kRank0, staged(51));
              }),
              ::testing::IsEmpty());
}

TEST_F(AWatch, TakesAnAnswerToLatestForNoLoad) {
  EXPECT_EQ(watch([](FirstSaveWatch& watch) {
              watch.from_client(kRank0, local::Latest{1});
              watch.to_client(kRank0, found(1, {1, 50, 1}));
              watch.from_client(kRank0, staged(1));
            }).size(),
            1u);
}

TEST_F(AWatch, IsQuietOfASaveThatAnEarlierNodeWasOffered) {
  EXPECT_THAT(watch([](FirstSaveWatch& watch) {
                local::Staged again = staged(1);
                again.again = true;
                watch.from_client(kRank0, again);
              }),
              ::testing::IsEmpty());
}

}  // namespace
}  // namespace shoal::actors
