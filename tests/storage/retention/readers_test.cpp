#include "storage/retention/readers.h"

#include <gmock/gmock.h>

#include "tests/storage/test_support.h"

namespace shoal::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kNow = 1'000'000;

TEST(Readers, HaveNumbersThatNoOtherHas) {
  MemoryStorage memory;
  auto first = claim_reader(*memory, "eval", nonce_of(1), kNow);
  ASSERT_OK(first.status());
  // Another process that draws the same number, and one that tries again because it received no answer.
  Nonce same_number = nonce_of(1);
  same_number.bytes.back() = std::byte{1};
  auto second = claim_reader(*memory, "eval", same_number, kNow);
  ASSERT_OK(second.status());
  EXPECT_NE(first->number, second->number);
  EXPECT_EQ(claim_reader(*memory, "eval", nonce_of(1), kNow + 5)->number, first->number);
  EXPECT_TRUE(list_generations(*memory)->empty()) << "no generation is claimed";
}

TEST(Readers, GoOnUnderTheirNumber) {
  MemoryStorage memory;
  const uint32_t number = claim_reader(*memory, "eval", nonce_of(1), kNow)->number;
  EXPECT_EQ(rejoin_reader(*memory, number, "eval", nonce_of(2), kNow)->nonce, nonce_of(1));
  const Status refused = rejoin_reader(*memory, number, "another", nonce_of(3), kNow).status();
  EXPECT_EQ(refused.code(), Code::refused);
  EXPECT_THAT(refused.message(), HasSubstr("is of job 'eval', not of job 'another'"));
  ASSERT_OK(remove_reader(*memory, number));
  EXPECT_EQ(rejoin_reader(*memory, number, "eval", nonce_of(2), kNow)->nonce, nonce_of(2)) << "claimed again";
  auto by_job = rejoin_reader(*memory, kGenerationOfJob, "eval", nonce_of(4), kNow);
  ASSERT_OK(by_job.status());
  EXPECT_EQ(rejoin_reader(*memory, kGenerationOfJob, "eval", nonce_of(5), kNow)->number, by_job->number);
}

TEST(Readers, ChooseApartFromGenerations) {
  MemoryStorage memory;
  const uint32_t number = claim_reader(*memory, "eval", nonce_of(1), kNow)->number;
  ASSERT_OK(
      publish_load_choice(*memory, number, 1, {true, {1, 500, 2}, nonce_of(1)}, ChoiceOf::reader).status());
  EXPECT_EQ(read_load_choice(*memory, number, 1, ChoiceOf::reader)->key, (AttemptKey{1, 500, 2}));
  EXPECT_EQ(publish_load_choice(*memory, number, 1, {false, {}, nonce_of(2)}, ChoiceOf::reader)->key,
            (AttemptKey{1, 500, 2}))
      << "the first one stands";
  EXPECT_EQ(read_load_choice(*memory, number, 1).status().code(), Code::not_found);
  EXPECT_EQ(read_live_generation(*memory)->generation, 0u);
}

TEST(Readers, LeaveABoundedNumberOfChoices) {
  MemoryStorage memory;
  constexpr uint32_t kLoads = 3 * kReaderChoicesKept;
  for (uint32_t ordinal = 1; ordinal <= kLoads; ++ordinal) {
    ASSERT_OK(publish_load_choice(*memory, 7, ordinal, {true, {1, ordinal, 1}, nonce_of(1)}, ChoiceOf::reader)
                  .status());
  }
  EXPECT_EQ(memory->list("readers")->size(), kReaderChoicesKept);
  EXPECT_EQ(read_load_choice(*memory, 7, kLoads, ChoiceOf::reader)->key.step, kLoads);
}

TEST(Readers, AreRemovedWithTheirChoicesAndWhenTheyAreOld) {
  MemoryStorage memory;
  const uint32_t old = claim_reader(*memory, "old", nonce_of(1), kNow)->number,
                 fresh = claim_reader(*memory, "fresh", nonce_of(2), kNow + 100)->number;
  for (const uint32_t number : {old, fresh, 9u}) {
    ASSERT_OK(publish_load_choice(*memory, number, 1, {false, {}, nonce_of(1)}, ChoiceOf::reader).status());
  }
  std::vector<uint32_t> expected = {9, old};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(*list_old_readers(*memory, kNow + 100), expected) << "choices without a claim count too";
  for (const uint32_t number : {old, fresh, 9u}) ASSERT_OK(remove_reader(*memory, number));
  EXPECT_THAT(*memory->list("readers"), IsEmpty());
  EXPECT_THAT(*list_old_readers(*memory, kNow + 100), IsEmpty());
}

TEST(Readers, ADamagedClaimIsOld) {
  MemoryStorage memory;
  ASSERT_OK(memory->create_exclusive("readers/5", bytes_of("no record")).status());
  EXPECT_THAT(*list_old_readers(*memory, kNow), ElementsAre(5u));
}

}  // namespace
}  // namespace shoal::storage
