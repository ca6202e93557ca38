// A root with a lost or damaged part: what still works, and which file an error names.
#include <gmock/gmock.h>

#include "storage/root/run_claims.h"
#include "storage/root/run_root.h"
#include "tests/storage/decisions/decision_samples.h"

namespace shoal::storage {
namespace {

using ::testing::HasSubstr;

TEST(LostRootId, IsNotReplacedWhereAttemptsLie) {
  MemoryStorage memory;
  ASSERT_OK(open_root(*memory, true, nonce_of(5)).status());
  ASSERT_OK(publish_decision(*memory, sample_manifest({2, 10, 1})).status());
  ASSERT_OK(memory->remove("ROOT_ID"));
  for (bool create : {true, false}) {
    Status status = open_root(*memory, create, nonce_of(6)).status();
    EXPECT_EQ(status.code(), Code::refused);
    EXPECT_EQ(status.message(),
              "root /root has no ROOT_ID, but step-00000010 exists: `shoal restore-id /root` "
              "restores it from the checkpoints");
  }
}

TEST(LostRootId, ComesBackFromTheDecisions) {
  MemoryStorage memory;
  Decision decision = sample_manifest({2, 10, 1});
  ASSERT_OK(publish_decision(*memory, decision).status());
  ASSERT_OK(publish_decision(*memory, sample_manifest({2, 20, 1})).status());
  memory.files.flip_bit(decision_path({2, 20, 1}), 50 * 8);
  auto restored = restore_root_id(*memory);
  ASSERT_OK(restored.status());
  EXPECT_EQ(*restored, decision.root_id);
  EXPECT_EQ(*open_root(*memory, true, nonce_of(6)), decision.root_id);
  EXPECT_EQ(restore_root_id(*memory).status().code(), Code::already_exists);
}

TEST(LostRootId, IsNotGuessed) {
  MemoryStorage memory;
  EXPECT_EQ(restore_root_id(*memory).status().code(), Code::not_found);
  Decision decision = sample_manifest({2, 10, 1});
  ASSERT_OK(publish_decision(*memory, decision).status());
  decision.key.step = 20;
  decision.root_id = nonce_of(4711);
  ASSERT_OK(publish_decision(*memory, decision).status());
  Status status = restore_root_id(*memory).status();
  EXPECT_EQ(status.code(), Code::refused);
  EXPECT_THAT(status.message(), HasSubstr("checkpoints of two runs"));
}

TEST(DamagedGenerations, BelowTheHighestDoNotBlockTheNextJob) {
  MemoryStorage memory;
  ASSERT_OK(claim_generation(*memory, "job-a", nonce_of(1)).status());
  ASSERT_OK(claim_generation(*memory, "job-b", nonce_of(2)).status());
  for (uint64_t bit : {100, 500}) memory.files.flip_bit("generations/1", bit);
  auto next = claim_generation(*memory, "job-c", nonce_of(3));
  ASSERT_OK(next.status());
  EXPECT_EQ(next->generation, 3u);
  EXPECT_EQ(list_generations(*memory)->size(), 2u);
}

// The digest of a claim shows which bit has flipped, so every process keeps its numbers.
TEST(DamagedGenerations, OfOneFlippedBitAtTheTopAreReadAsTheyWere) {
  MemoryStorage memory;
  ASSERT_OK(claim_generation(*memory, "job-a", nonce_of(1)).status());
  const uint64_t bits = memory->list("generations")->front().size * 8;
  for (uint64_t bit = 0; bit < bits; bit += 5) {
    memory.files.flip_bit("generations/1", bit);
    EXPECT_EQ(claim_generation(*memory, "job-a", nonce_of(1))->generation, 1u) << "the same start";
    EXPECT_EQ(rejoin_generation(*memory, 1, "job-a", nonce_of(2))->nonce, nonce_of(1));
    EXPECT_EQ(rejoin_generation(*memory, 1, "job-b", nonce_of(2)).status().code(), Code::refused);
    memory.files.flip_bit("generations/1", bit);
  }
  memory.files.flip_bit("generations/1", 100);
  EXPECT_EQ(claim_generation(*memory, "job-b", nonce_of(2))->generation, 2u);
}

TEST(DamagedGenerations, AtTheTopAreNamedWithTheWayOut) {
  MemoryStorage memory;
  ASSERT_OK(claim_generation(*memory, "job-a", nonce_of(1)).status());
  for (uint64_t bit : {100, 500}) memory.files.flip_bit("generations/1", bit);
  Status status = claim_generation(*memory, "job-b", nonce_of(2)).status();
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_THAT(status.message(), HasSubstr("/root/generations/1: damaged generation"));
  EXPECT_THAT(status.message(), HasSubstr("rename it to /root/generations/1.damaged"));

  Bytes damaged = *memory->read("generations/1", 10'000);
  ASSERT_OK(memory->remove("generations/1"));
  ASSERT_OK(memory->create_exclusive("generations/1.damaged", damaged).status());
  EXPECT_EQ(claim_generation(*memory, "job-b", nonce_of(2))->generation, 2u) << "1 was used";
}

TEST(DamagedGenerations, ThatAreFoldersAreNamed) {
  MemoryStorage memory;
  ASSERT_OK(claim_generation(*memory, "job-a", nonce_of(1)).status());
  ASSERT_OK(memory->create_exclusive("generations/2/x", as_view("x")).status());
  Status status = claim_generation(*memory, "job-b", nonce_of(2)).status();
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_THAT(status.message(), HasSubstr("/root/generations/2: it is not a regular file"));
}

// The records as a live run knows them; its node restores them before the next commit.
class LostClaims : public ::testing::Test {
 protected:
  LostClaims() {
    const RootId id = open_root(*memory_, true, nonce_of(77)).value();
    const auto generation = claim_generation(*memory_, "job-a", nonce_of(1)).value();
    const EpochRecord epoch{2, "host:1", "job-a", nonce_of(1), generation.generation};
    SHOAL_CHECK(*claim_epoch(*memory_, epoch));
    claims_ = {id, generation, epoch};
    for (const char* path : kPaths) before_.push_back(memory_->read(path, 10'000).value());
  }
  void expect_as_before() {
    for (size_t i = 0; i < 3; ++i)
      EXPECT_EQ(memory_->read(kPaths[i], 10'000).value(), before_[i]) << kPaths[i];
  }
  static constexpr const char* kPaths[] = {"ROOT_ID", "generations/1", "epochs/2"};
  MemoryStorage memory_;
  RunClaims claims_;
  std::vector<Bytes> before_;
};

TEST_F(LostClaims, AreLeftAsTheyAreWhereNothingIsWrong) {
  EXPECT_TRUE(restore_claims(*memory_, claims_)->empty());
  ASSERT_OK(claim_generation(*memory_, "job-b", nonce_of(2)).status());
  EXPECT_TRUE(restore_claims(*memory_, claims_)->empty())
      << "a later run's number is no matter of this one's";
  expect_as_before();
}

TEST_F(LostClaims, ComeBackByteForByteWhereTheyWereRemoved) {
  for (const char* path : kPaths) {
    ASSERT_OK(memory_->remove(path));
    EXPECT_THAT(*restore_claims(*memory_, claims_), ::testing::ElementsAre(path));
  }
  for (const char* path : kPaths) ASSERT_OK(memory_->remove(path));
  for (const char* folder : {"generations", "epochs"}) ASSERT_OK(memory_->remove_folder(folder));
  EXPECT_EQ(restore_claims(*memory_, claims_)->size(), 3u);
  expect_as_before();
}

TEST_F(LostClaims, ComeBackWhereTheyWereDamaged) {
  for (const char* path : kPaths) {
    for (uint64_t bits : {1, 2, 5}) {
      for (uint64_t bit = 0; bit < bits; ++bit) memory_.files.flip_bit(path, 40 + 77 * bit);
      EXPECT_THAT(*restore_claims(*memory_, claims_), ::testing::ElementsAre(path)) << bits;
    }
    ASSERT_OK(memory_->replace(path, {}));
    EXPECT_THAT(*restore_claims(*memory_, claims_), ::testing::ElementsAre(path));
  }
  expect_as_before();
}

// Regression: a run that had been passed put its epoch back above that of the later run, which then ended.
TEST_F(LostClaims, AreNotPutAboveTheEpochOfALaterRun) {
  ASSERT_OK(memory_->remove("epochs/2"));
  ASSERT_OK(claim_generation(*memory_, "job-b", nonce_of(2)).status());
  ASSERT_TRUE(*claim_epoch(*memory_, {1, "host:2", "job-b", nonce_of(2), 2}));
  const Status status = restore_claims(*memory_, claims_).status();
  EXPECT_EQ(status.code(), Code::refused);
  EXPECT_THAT(status.message(),
              HasSubstr("/root/epochs/2 is missing, and a later run has claimed generation 2"));
  EXPECT_EQ((*highest_epoch(*memory_))->epoch, 1u);
}

// The number went to another run meanwhile: it stays with that one.
TEST_F(LostClaims, ThatSomebodyElseHasMadeMeanwhileAreRefusedByName) {
  for (const char* path : kPaths) ASSERT_OK(memory_->remove(path));
  ASSERT_OK(open_root(*memory_, true, nonce_of(78)).status());
  Status status = restore_claims(*memory_, claims_).status();
  EXPECT_EQ(status.code(), Code::refused);
  EXPECT_THAT(status.message(), HasSubstr("/root/ROOT_ID now names the root of another run"));
  claims_.root_id = nonce_of(78);
  EXPECT_EQ(claim_generation(*memory_, "job-b", nonce_of(2))->generation, 1u);
  status = restore_claims(*memory_, claims_).status();
  EXPECT_EQ(status.code(), Code::refused);
  EXPECT_THAT(status.message(), HasSubstr("/root/generations/1 was claimed by job 'job-b'"));
  claims_.generation.reset();
  ASSERT_TRUE(*claim_epoch(*memory_, {2, "host:2", "job-b", nonce_of(2), 1}));
  status = restore_claims(*memory_, claims_).status();
  EXPECT_EQ(status.code(), Code::refused);
  EXPECT_THAT(status.message(), HasSubstr("/root/epochs/2 was claimed by job 'job-b' at host:2"));
}

TEST(UnreadableDecisions, AreListedApartFromTheOthers) {
  MemoryStorage memory;
  for (uint64_t step : {10u, 20u})
    ASSERT_OK(publish_decision(*memory, sample_manifest({2, step, 1})).status());
  ASSERT_OK(memory->create_exclusive(decision_path({2, 30, 1}) + "/x", as_view("x")).status());
  auto listed = list_attempts(*memory);
  ASSERT_OK(listed.status());
  EXPECT_EQ(listed->attempts.size(), 2u);
  ASSERT_EQ(listed->damaged.size(), 1u);
  EXPECT_EQ(listed->damaged[0].first, (AttemptKey{2, 30, 1}));
  EXPECT_THAT(listed->damaged[0].second.message(), HasSubstr("step-00000030/g2a1/manifest.shoal"));
}

}  // namespace
}  // namespace shoal::storage
