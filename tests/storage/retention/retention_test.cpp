// Which checkpoints are kept, and how the others are deleted.
#include <gmock/gmock.h>

#include "tests/storage/retention/retention_samples.h"

namespace shoal::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kNowS = 1'700'100'000;
constexpr int64_t kDueNs = kNowS * 1'000'000'000;

RetentionPlan plan(MemoryStorage& memory, const RetentionPolicy& policy, KnownAttempts* known = nullptr) {
  auto planned = plan_retention(*memory, policy, kDueNs, known);
  EXPECT_OK(planned.status());
  return planned.ok() ? *planned : RetentionPlan{};
}

TEST(Marks, AreReadBackAndReplaced) {
  MemoryStorage memory;
  Mark pin = pin_of(1, {1, 10, 1}, true, 7);
  EXPECT_TRUE(*create_mark(*memory, MarkKind::pin, pin));
  EXPECT_FALSE(*create_mark(*memory, MarkKind::pin, pin));
  pin.counter = 8;
  ASSERT_OK(replace_mark(*memory, MarkKind::pin, pin));
  auto listed = list_marks(*memory, MarkKind::pin);
  ASSERT_OK(listed.status());
  ASSERT_EQ(listed->marks.size(), 1u);
  EXPECT_EQ(listed->marks[0].key, (AttemptKey{1, 10, 1}));
  EXPECT_EQ(listed->marks[0].counter, 8u);
  EXPECT_TRUE(listed->marks[0].is_lease);
  EXPECT_EQ(listed->marks[0].note, "a test");
  ASSERT_OK(remove_mark(*memory, MarkKind::pin, pin.name));
  ASSERT_OK(remove_mark(*memory, MarkKind::pin, pin.name));
  EXPECT_EQ(replace_mark(*memory, MarkKind::pin, pin).code(), Code::not_found)
      << "what ended does not come back";
  EXPECT_TRUE(list_marks(*memory, MarkKind::pin)->marks.empty());
}

TEST(Marks, HaveNamesThatAreNames) {
  for (const char* name : {"best", "v1.0", "A-b_c"}) EXPECT_OK(validate_tag(name));
  for (const char* name : {"", "latest", "1st", ".x", "a/b", "a b", "-x"}) {
    EXPECT_EQ(validate_tag(name).code(), Code::invalid_argument) << name;
  }
  EXPECT_EQ(validate_tag(std::string(65, 'a')).code(), Code::invalid_argument);
  EXPECT_EQ(verified_name({3, 1000, 1}), "step-00001000.g3a1");
  MemoryStorage memory;
  EXPECT_EQ(create_mark(*memory, MarkKind::tag, mark_of("../x", {})).status().code(), Code::invalid_argument);
}

TEST(RetentionPlan, WithoutARuleKeepsEverything) {
  MemoryStorage memory;
  for (uint64_t step : {10u, 20u, 30u}) commit_sample(*memory, {1, step, 1});
  EXPECT_THAT(plan(memory, {}).remove, IsEmpty());
  EXPECT_THAT(steps_of(plan(memory, {}).keep), ElementsAre(10, 20, 30));
}

TEST(RetentionPlan, KeepsTheLastInTheOrderOfLatest) {
  MemoryStorage memory;
  for (uint64_t step : {10u, 20u, 500u}) commit_sample(*memory, {1, step, 1});
  for (uint64_t step : {20u, 30u}) commit_sample(*memory, {2, step, 1});
  RetentionPlan planned = plan(memory, {.keep_last = 3});
  EXPECT_THAT(steps_of(planned.keep), ElementsAre(500, 20, 30));
  EXPECT_THAT(steps_of(planned.remove), ElementsAre(10, 20));
  EXPECT_EQ(planned.remove[0].why, "no rule keeps it: keep-last 3");
}

// Regression: a newest manifest with a bit flipped in its body was the one that was kept, and every
// checkpoint that still could be loaded went.
TEST(RetentionPlan, DoesNotCountWhatDoesNotReadBack) {
  for (bool remembers : {false, true}) {
    MemoryStorage memory;
    KnownAttempts known;
    for (uint64_t step : {10u, 20u, 30u, 40u}) commit_sample(*memory, {1, step, 1});
    ASSERT_TRUE(*create_mark(*memory, MarkKind::verified, mark_of(verified_name({1, 40, 1}), {1, 40, 1})));
    memory.files.flip_bit(decision_path({1, 40, 1}), 8 * 100);
    for (int twice = 0; twice < 2; ++twice) {
      RetentionPlan planned = plan(memory, {.keep_last = 2, .keep_every = 40}, remembers ? &known : nullptr);
      EXPECT_THAT(steps_of(planned.keep), ElementsAre(20, 30));
      EXPECT_THAT(steps_of(planned.remove), ElementsAre(10));
      ASSERT_EQ(planned.damaged.size(), 1u);
      EXPECT_EQ(planned.damaged[0].first.step, 40u);
    }
  }
}

TEST(RetentionPlan, KeepsTheNewestOfEachStepThatIsAMultiple) {
  MemoryStorage memory;
  for (uint64_t step : {100u, 150u, 200u}) commit_sample(*memory, {1, step, 1});
  for (uint64_t step : {200u, 250u}) commit_sample(*memory, {2, step, 1});
  RetentionPlan planned = plan(memory, {.keep_every = 100});
  ASSERT_THAT(steps_of(planned.keep), ElementsAre(100, 200, 250));
  EXPECT_EQ(planned.keep[1].key.generation, 2u);
  EXPECT_THAT(steps_of(planned.remove), ElementsAre(150, 200));
}

TEST(RetentionPlan, KeepsWhatIsYoung) {
  MemoryStorage memory;
  commit_sample(*memory, {1, 10, 1}, kNowS - 100);
  commit_sample(*memory, {1, 20, 1}, kNowS - 99);
  commit_sample(*memory, {1, 30, 1}, kNowS + 1000);  // by a clock that is ahead
  commit_sample(*memory, {1, 40, 1}, kNowS - 1000);
  KnownAttempts known;
  for (int i = 0; i < 2; ++i) {
    RetentionPlan planned = plan(memory, {.keep_for_s = 100}, &known);
    EXPECT_THAT(steps_of(planned.keep), ElementsAre(20, 30, 40));
    EXPECT_THAT(steps_of(planned.remove), ElementsAre(10));
  }
}

TEST(RetentionPlan, AlwaysKeepsTheNewestTheLastVerifiedAndWhatIsNamed) {
  MemoryStorage memory;
  ASSERT_OK(claim_generation(*memory, "a", nonce_of(1)).status());
  for (uint64_t step = 1; step <= 8; ++step) commit_sample(*memory, {1, step, 1});
  for (uint64_t step : {2u, 4u}) {
    ASSERT_TRUE(
        *create_mark(*memory, MarkKind::verified, mark_of(verified_name({1, step, 1}), {1, step, 1})));
  }
  ASSERT_TRUE(*create_mark(*memory, MarkKind::pin, pin_of(1, {1, 3, 1})));
  ASSERT_TRUE(*create_mark(*memory, MarkKind::tag, mark_of("best", {1, 5, 1})));
  ASSERT_OK(publish_load_choice(*memory, 1, 0, {true, {1, 1, 1}, nonce_of(1)}).status());
  ASSERT_OK(claim_generation(*memory, "b", nonce_of(2)).status());
  ASSERT_OK(publish_load_choice(*memory, 2, 0, {true, {1, 6, 1}, nonce_of(1)}).status());
  RetentionPlan planned = plan(memory, {.keep_last = 1});
  EXPECT_THAT(steps_of(planned.keep), ElementsAre(3, 4, 5, 6, 8));
  EXPECT_THAT(steps_of(planned.remove), ElementsAre(1, 2, 7));
  EXPECT_EQ(planned.keep[1].why, "the newest that was verified");
  EXPECT_EQ(planned.keep[2].why, "tagged best");
  EXPECT_EQ(planned.keep[3].why, "generation 2 began with it");
}

TEST(RetentionPlan, DeletesNothingWhileAPinCannotBeRead) {
  MemoryStorage memory;
  for (uint64_t step : {10u, 20u, 30u}) commit_sample(*memory, {1, step, 1});
  Mark pin = pin_of(1, {1, 10, 1});
  ASSERT_TRUE(*create_mark(*memory, MarkKind::pin, pin));
  memory.files.flip_bit("pins/" + pin.name, 300);
  Status status = plan_retention(*memory, {.keep_last = 1}, kDueNs, nullptr).status();
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_THAT(status.message(), HasSubstr("/root/pins/" + pin.name));
}

TEST(RetentionPlan, TouchesNothingThatIsUndecidedOrDamaged) {
  MemoryStorage memory;
  for (uint64_t step : {10u, 20u, 30u}) commit_sample(*memory, {1, step, 1});
  memory.files.flip_bit(decision_path({1, 10, 1}), 100);
  ASSERT_OK(memory->create_exclusive(shard_path({1, 5, 1}, 0, 0), Bytes(100)).status());
  ASSERT_OK(publish_decision(*memory, sample_tombstone({1, 6, 1})).status());
  ASSERT_OK(memory->create_exclusive(shard_path({1, 6, 1}, 0, 0), Bytes(100)).status());
  RetentionPlan planned = plan(memory, {.keep_last = 1});
  EXPECT_THAT(steps_of(planned.remove), ElementsAre(20));
  EXPECT_THAT(planned.sweep, ElementsAre(AttemptKey{1, 6, 1}));
  ASSERT_EQ(planned.damaged.size(), 1u);
  EXPECT_THAT(planned.undecided, IsEmpty()) << "its generation may be alive";
}

TEST(Deletion, LeavesNothingOfACheckpoint) {
  for (unsigned threads : {1u, 4u}) {
    MemoryStorage memory;
    commit_sample(*memory, {1, 10, 1});
    commit_sample(*memory, {1, 20, 1});
    auto result = delete_checkpoint(*memory, deletion_of({1, 10, 1}, 900, threads));
    ASSERT_OK(result.status());
    EXPECT_EQ(result->outcome, DeletionResult::Outcome::gone);
    EXPECT_EQ(result->bytes, 201u);
    EXPECT_EQ(result->files, 2u);
    EXPECT_EQ(memory->list("step-00000010").status().code(), Code::not_found);
    EXPECT_EQ(list_attempts(*memory)->attempts.size(), 1u);
    auto again = delete_checkpoint(*memory, deletion_of({1, 10, 1}, 901));
    ASSERT_OK(again.status());
    EXPECT_EQ(again->outcome, DeletionResult::Outcome::gone);
  }
}

TEST(Deletion, LeavesTheOtherAttemptsOfAStep) {
  MemoryStorage memory;
  commit_sample(*memory, {1, 10, 1});
  commit_sample(*memory, {2, 10, 1});
  ASSERT_OK(delete_checkpoint(*memory, deletion_of({1, 10, 1})).status());
  EXPECT_EQ(list_attempts(*memory)->attempts.size(), 1u);
  EXPECT_EQ(memory->list("step-00000010")->size(), 1u);
}

TEST(Deletion, OfWhatALoadHoldsTakesTheNameAndLeavesTheFiles) {
  MemoryStorage memory;
  const AttemptKey key = {1, 10, 1};
  commit_sample(*memory, key);
  // The load's pin comes after the plan was made and looked for pins, and before the tombstone.
  ASSERT_TRUE(*mark_deleted(*memory, sample_tombstone(key, 3, Tombstone::Reason::deleted)));
  Mark pin = pin_of(1, key, true);
  ASSERT_TRUE(*create_mark(*memory, MarkKind::pin, pin));
  auto held = delete_checkpoint(*memory, deletion_of(key));
  ASSERT_OK(held.status());
  EXPECT_EQ(held->outcome, DeletionResult::Outcome::held);
  EXPECT_THAT(held->why, HasSubstr(pin.name));
  EXPECT_EQ(inspect_attempt(*memory, key)->leftover_files, 2u);
  EXPECT_THAT(plan(memory, {}).finish, ElementsAre(key));
  ASSERT_OK(remove_mark(*memory, MarkKind::pin, pin.name));
  EXPECT_EQ(delete_checkpoint(*memory, deletion_of(key))->outcome, DeletionResult::Outcome::gone);
  EXPECT_THAT(list_attempts(*memory)->attempts, IsEmpty());
}

TEST(Deletion, KeepsWhatIsPinnedTaggedUndecidedOrAborted) {
  MemoryStorage memory;
  for (uint64_t step : {10u, 20u}) commit_sample(*memory, {1, step, 1});
  ASSERT_TRUE(*create_mark(*memory, MarkKind::pin, pin_of(1, {1, 10, 1})));
  ASSERT_TRUE(*create_mark(*memory, MarkKind::tag, mark_of("best", {1, 20, 1})));
  ASSERT_OK(memory->create_exclusive(shard_path({1, 30, 1}, 0, 0), Bytes(100)).status());
  ASSERT_OK(publish_decision(*memory, sample_tombstone({1, 40, 1})).status());
  for (uint64_t step : {10u, 20u, 30u, 40u}) {
    auto result = delete_checkpoint(*memory, deletion_of({1, step, 1}));
    ASSERT_OK(result.status());
    EXPECT_EQ(result->outcome, DeletionResult::Outcome::kept) << step;
  }
  EXPECT_EQ(list_attempts(*memory)->attempts.size(), 4u);
}

TEST(Deletion, NeverTakesTheOnlyVerifiedCheckpoint) {
  MemoryStorage memory;
  for (uint64_t step : {10u, 20u}) {
    commit_sample(*memory, {1, step, 1});
    ASSERT_TRUE(
        *create_mark(*memory, MarkKind::verified, mark_of(verified_name({1, step, 1}), {1, step, 1})));
  }
  EXPECT_EQ(delete_checkpoint(*memory, deletion_of({1, 20, 1}))->outcome, DeletionResult::Outcome::gone);
  auto last = delete_checkpoint(*memory, deletion_of({1, 10, 1}));
  EXPECT_EQ(last->outcome, DeletionResult::Outcome::kept);
  EXPECT_EQ(last->why, "no other checkpoint is verified");
  EXPECT_EQ(list_marks(*memory, MarkKind::verified)->marks.size(), 1u);
}

TEST(Deletion, CannotBeUndoneByWhoeverWasAsleep) {
  MemoryStorage memory;
  const AttemptKey key = {1, 10, 1};
  commit_sample(*memory, key);
  ASSERT_OK(delete_checkpoint(*memory, deletion_of(key)).status());
  EXPECT_EQ(publish_decision_in_folder(*memory, sample_manifest(key, 55)).status().code(), Code::not_found);
  EXPECT_THAT(list_attempts(*memory)->attempts, IsEmpty());
}

TEST(Latest, StaysTheNewestOfWhatRemains) {
  MemoryStorage memory;
  for (uint64_t step : {10u, 20u, 30u}) commit_sample(*memory, {1, step, 1});
  ASSERT_TRUE(*mark_deleted(*memory, sample_tombstone({1, 30, 1}, 3, Tombstone::Reason::deleted)));
  ASSERT_OK(memory->create_exclusive(shard_path({1, 40, 1}, 0, 0), Bytes(100)).status());
  auto newest = list_newest_attempts(*memory);
  ASSERT_OK(newest.status());
  ASSERT_EQ(newest->attempts.size(), 3u);
  EXPECT_EQ(newest->attempts[0].key.step, 20u);
  EXPECT_EQ(newest->attempts[0].state, AttemptInfo::State::committed);
  EXPECT_EQ(list_attempts_of_step(*memory, 30)->attempts.size(), 1u);
  EXPECT_EQ(list_attempts_of_step(*memory, 77)->attempts.size(), 0u);
}

TEST(Remains, OfAPinnedAttemptStay) {
  MemoryStorage memory;
  const std::string copy = "step-00000010/" + partial_name("g3a1", nonce_of(4));
  const std::string other = "step-00000010/" + partial_name("g3a2", nonce_of(4));
  for (const std::string& folder : {copy, other}) {
    ASSERT_OK(memory->create_exclusive(folder + "/rank-00000.safetensors", Bytes(10)).status());
  }
  const Mark pin = pin_of(1, {3, 10, 1}, true);
  ASSERT_OK(create_mark(*memory, MarkKind::pin, pin).status());
  EXPECT_THAT(plan(memory, {}).remains, ElementsAre(other)) << "`shoal copy` writes the other one";
  ASSERT_OK(remove_mark(*memory, MarkKind::pin, pin.name));
  EXPECT_THAT(plan(memory, {}).remains, ElementsAre(copy, other));
}

TEST(Remains, OfDeletionsAndEmptyFoldersGo) {
  MemoryStorage memory;
  commit_sample(*memory, {1, 10, 1});
  std::string aside = "step-00000010/" + partial_name("g3a1", nonce_of(4));
  ASSERT_OK(memory->create_exclusive(aside + "/manifest.shoal", Bytes(10)).status());
  ASSERT_OK(memory->create_exclusive("step-00000020/x", Bytes(10)).status());
  ASSERT_OK(memory->remove("step-00000020/x"));
  RetentionPlan planned = plan(memory, {});
  EXPECT_THAT(planned.remains, ElementsAre(aside, "step-00000020"));
  for (int twice = 0; twice < 2; ++twice) {
    for (const std::string& folder : planned.remains) EXPECT_OK(remove_remains(*memory, folder));
  }
  EXPECT_OK(remove_remains(*memory, "step-00000010")) << "in use";
  EXPECT_THAT(plan(memory, {}).remains, IsEmpty());
  EXPECT_EQ(list_attempts(*memory)->attempts.size(), 1u);
}

TEST(Leases, EndWhenTheirCounterStandsStill) {
  LeaseWatch watch;
  const int64_t ttl = 100;
  Mark moving = pin_of(1, {1, 10, 1}, true), still = pin_of(2, {1, 10, 1}, true);
  EXPECT_THAT(watch.ended({0, 0}, ttl, {moving, still}), IsEmpty());
  ++moving.counter;
  EXPECT_THAT(watch.ended({99, 99}, ttl, {moving, still}), IsEmpty());
  auto ended = watch.ended({100, 100}, ttl, {moving, still});
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].name, still.name);
  EXPECT_THAT(watch.ended({150, 150}, ttl, {}), IsEmpty());
  EXPECT_THAT(watch.ended({500, 500}, ttl, {moving}), IsEmpty())
      << "it was away: what it did meanwhile nobody saw";
}

TEST(Leases, DoNotAgeWhileASlowStorageIsRead) {
  LeaseWatch watch;
  const int64_t ttl = 100;
  const Mark lease = pin_of(1, {1, 10, 1}, true);
  EXPECT_THAT(watch.ended({0, 150}, ttl, {lease}), IsEmpty());
  EXPECT_THAT(watch.ended({160, 290}, ttl, {lease}), IsEmpty()) << "it was perhaps read at 150 and at 160";
  EXPECT_THAT(watch.ended({250, 260}, ttl, {lease}), SizeIs(1));
}

}  // namespace
}  // namespace shoal::storage
