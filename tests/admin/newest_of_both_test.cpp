// What a job that drains finds out, and does, before it starts.
#include "admin/newest_of_both.h"

#include <gmock/gmock.h>

#include "admin/checkpoint_copy.h"
#include "tests/admin/copied_checkpoint.h"

namespace shoal::admin {
namespace {

using storage::MemoryStorage;
using storage::nonce_of;

class NewestOfBothTest : public ::testing::Test {
 protected:
  NewestOfBothTest() {
    SHOAL_CHECK(storage::open_root(*fast_, true, kSourceId).ok());
    SHOAL_CHECK(storage::open_root(*other_, true, kTargetId).ok());
  }
  OpenRoot fast() { return {nullptr, fast_.opened(50), kSourceId}; }
  OpenRoot other() { return {nullptr, other_.opened(51), kTargetId}; }
  NewestOfBoth compare() {
    auto compared = compare_newest(fast(), other());
    EXPECT_OK(compared.status());
    return compared.ok() ? *compared : NewestOfBoth{};
  }
  void begin_run_in_fast_root() {
    SHOAL_CHECK(storage::claim_generation(*fast_, "job", nonce_of(++runs_)).ok());
  }
  void copy_back(const AttemptKey& key) {
    std::atomic<uint64_t> bytes{0};
    const CopyResult result = CheckpointCopier(*other_, *fast_, kSourceId).copy(key, &bytes);
    EXPECT_EQ(result.outcome, CopyResult::Outcome::copied) << result.status.to_string();
  }

  MemoryStorage fast_, other_;
  uint64_t runs_ = 100;
};

TEST_F(NewestOfBothTest, IsNothingAtTheBeginning) {
  EXPECT_EQ(compare().newest, std::nullopt);
  EXPECT_FALSE(compare().is_newer);
  EXPECT_EQ(compare().generation_to_claim, std::nullopt);
}

TEST_F(NewestOfBothTest, IsThatOfTheOtherRootIfTheFastOneIsEmpty) {
  const AttemptKey key{2, 5, 1};
  commit_copied(*other_, key, 8);
  EXPECT_TRUE(compare().is_newer);
  EXPECT_EQ(compare().newest, key);
  EXPECT_EQ(compare().generation_to_claim, 3u);
  ASSERT_OK(storage::claim_for_copies(*other_, 7, nonce_of(9)));
  EXPECT_EQ(compare().generation_to_claim, 8u) << "an unfinished copy there may have generation 7";
  ASSERT_OK(claim_for_next_run(fast(), 8));
  copy_back(key);
  EXPECT_FALSE(compare().is_newer);
  EXPECT_EQ(compare().generation_to_claim, std::nullopt);
  EXPECT_EQ(storage::claim_generation(*fast_, "next", nonce_of(3))->generation, 9u);
}

// A machine on which a job ran, which then went on elsewhere, and comes back.
TEST_F(NewestOfBothTest, IsCopiedBackOverOlderRunsOfTheFastRoot) {
  begin_run_in_fast_root();
  commit_copied(*fast_, {1, 9, 1}, 8);
  const AttemptKey key{1, 10, 1};
  commit_copied(*other_, key, 8);
  ASSERT_TRUE(compare().is_newer);
  EXPECT_EQ(compare().generation_to_claim, 2u) << "run 1 of the fast root has ended";
  ASSERT_OK(claim_for_next_run(fast(), 2));
  EXPECT_EQ(compare().generation_to_claim, std::nullopt) << "a job that was killed here goes on";
  copy_back(key);
  EXPECT_EQ(storage::claim_generation(*fast_, "next", nonce_of(3))->generation, 3u);
}

// Regression: a job that had gone on in its fast root without a drain came back, and the rules of the other
// root deleted the newer checkpoints of the job that had taken its place.
TEST_F(NewestOfBothTest, AreOfTwoLinesIfTheRootsMeanDifferentRunsByOneGeneration) {
  ASSERT_OK(storage::claim_for_copies(*other_, 1, nonce_of(9)));
  commit_copied(*other_, {1, 20, 1}, 8);
  begin_run_in_fast_root();
  commit_copied(*fast_, {1, 7, 1}, 8);
  EXPECT_EQ(compare().is_one_line.code(), Code::refused);
  begin_run_in_fast_root();
  commit_copied(*fast_, {2, 8, 1}, 8);
  const Status refused = compare().is_one_line;
  EXPECT_EQ(refused.code(), Code::refused) << "also if that of the fast root is newer";
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("which has step 20 (g1a1), is another one"));
}

TEST_F(NewestOfBothTest, AreOfOneLineIfOneIsACopyOfTheOther) {
  begin_run_in_fast_root();
  const AttemptKey key{1, 7, 1};
  commit_copied(*fast_, key, 8);
  std::atomic<uint64_t> bytes{0};
  ASSERT_EQ(CheckpointCopier(*fast_, *other_, kTargetId).copy(key, &bytes).outcome,
            CopyResult::Outcome::copied);
  EXPECT_OK(compare().is_one_line);
  commit_copied(*fast_, {1, 8, 1}, 8);
  EXPECT_OK(compare().is_one_line);
  begin_run_in_fast_root();
  commit_copied(*fast_, {2, 8, 1}, 8);
  EXPECT_OK(compare().is_one_line);
}

// A machine that was lost before its last run had copied anything.
TEST_F(NewestOfBothTest, AreOfOneLineIfTheLauncherHasClaimedTheNumberThatAJobElsewhereUsed) {
  begin_run_in_fast_root();
  ASSERT_OK(claim_for_next_run(fast(), 2));
  ASSERT_OK(storage::claim_for_copies(*other_, 2, nonce_of(9)));
  commit_copied(*other_, {2, 20, 1}, 8);
  EXPECT_TRUE(compare().is_newer);
  EXPECT_OK(compare().is_one_line);
}

TEST_F(NewestOfBothTest, IsThatOfTheFastRootIfAllOfTheOtherIsOlderOrTheSame) {
  begin_run_in_fast_root();
  commit_copied(*fast_, {1, 9, 1}, 8);
  commit_copied(*other_, {1, 9, 1}, 8);
  ASSERT_OK(storage::claim_for_copies(*other_, 1, nonce_of(9)));
  EXPECT_FALSE(compare().is_newer);
  EXPECT_EQ(compare().generation_to_claim, std::nullopt);
  commit_copied(*fast_, {1, 10, 1}, 8);
  EXPECT_FALSE(compare().is_newer);
}

}  // namespace
}  // namespace shoal::admin
