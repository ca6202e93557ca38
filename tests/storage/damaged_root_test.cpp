// A root of which something was lost or damaged: what still works, and which file an error names.
#include <gmock/gmock.h>

#include "storage/run_root.h"
#include "tests/storage/decision_samples.h"

namespace shoal {
namespace {

using testing::HasSubstr;

TEST(LostRootId, IsNotReplacedWhereAttemptsLie) {
  MemoryStorage memory;
  ASSERT_OK(open_root(*memory, true, nonce_of(5)).status());
  ASSERT_OK(publish_decision(*memory, sample_manifest({2, 10, 1})).status());
  ASSERT_OK(memory->remove("ROOT_ID"));
  for (bool create : {true, false}) {
    Status status = open_root(*memory, create, nonce_of(6)).status();
    EXPECT_EQ(status.code(), Code::refused);
    EXPECT_EQ(
        status.message(),
        "root /root has lost its ROOT_ID, for step-00000010 lies there: `shoal restore-id /root` puts it "
        "back from the checkpoints");
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
  memory.files.flip_bit("generations/1", 100);
  auto next = claim_generation(*memory, "job-c", nonce_of(3));
  ASSERT_OK(next.status());
  EXPECT_EQ(next->generation, 3u);
  EXPECT_EQ(list_generations(*memory)->size(), 2u);
}

TEST(DamagedGenerations, AtTheTopAreNamedWithTheWayOut) {
  MemoryStorage memory;
  ASSERT_OK(claim_generation(*memory, "job-a", nonce_of(1)).status());
  memory.files.flip_bit("generations/1", 100);
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
  EXPECT_THAT(status.message(), HasSubstr("/root/generations/2: no regular file"));
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
}  // namespace shoal
