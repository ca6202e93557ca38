#include "storage/root/attempt_views.h"

#include <gmock/gmock.h>

#include "tests/storage/decisions/decision_samples.h"
#include "tests/storage/test_support.h"

namespace shoal::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using State = CheckpointInfo::State;

class ListedCheckpoints : public ::testing::Test {
 protected:
  ListedCheckpoints() {
    EXPECT_OK(publish_decision(*memory, sample_manifest({1, 10, 1})).status());
    EXPECT_OK(publish_decision(*memory, sample_tombstone({1, 20, 1})).status());
    EXPECT_OK(
        publish_decision(*memory, sample_tombstone({1, 30, 1}, 1, Tombstone::Reason::deleted)).status());
    EXPECT_OK(memory->create_exclusive("step-00000040/g1a1/rank-00000.safetensors", Bytes(100)).status());
  }
  static std::vector<std::pair<uint64_t, State>> states_of(const CheckpointList& list) {
    std::vector<std::pair<uint64_t, State>> out;
    for (const CheckpointInfo& each : list.attempts) out.emplace_back(each.key.step, each.state);
    return out;
  }
  MemoryStorage memory;
};

TEST_F(ListedCheckpoints, SayWhatBecameOfEachAttempt) {
  auto list = list_newest_checkpoints(*memory, 100);
  ASSERT_OK(list.status());
  EXPECT_THAT(states_of(*list), ElementsAre(std::pair{10, State::committed}, std::pair{20, State::aborted},
                                            std::pair{30, State::deleted}, std::pair{40, State::undecided}));
  EXPECT_EQ(list->omitted, 0u);
  const CheckpointInfo& checkpoint = list->attempts[0];
  EXPECT_EQ(checkpoint.world_size, 4u);
  EXPECT_EQ(checkpoint.files, 4u);
  EXPECT_EQ(checkpoint.payload_bytes, 1234u);
  EXPECT_EQ(checkpoint.unix_time_ns, 1'700'000'000'000'000'000);
  EXPECT_EQ(checkpoint.cause, "");
  EXPECT_EQ(list->attempts[1].cause, "rank 2: the disk is full");
}

TEST_F(ListedCheckpoints, AreTheNewestAndReachACheckpoint) {
  auto few = list_newest_checkpoints(*memory, 1);
  ASSERT_OK(few.status());
  EXPECT_EQ(few->attempts.size(), 4u) << "none of the newest is a checkpoint";
  ASSERT_OK(publish_decision(*memory, sample_manifest({2, 5, 1})).status());
  few = list_newest_checkpoints(*memory, 2);
  ASSERT_OK(few.status());
  EXPECT_THAT(states_of(*few), ElementsAre(std::pair{40, State::undecided}, std::pair{5, State::committed}));
  EXPECT_EQ(few->omitted, 3u);
}

TEST_F(ListedCheckpoints, NameWhatCannotBeRead) {
  ASSERT_OK(memory->create_exclusive("step-00000050/g1a1/manifest.shoal", bytes_of("no record")).status());
  auto list = list_newest_checkpoints(*memory, 100);
  ASSERT_OK(list.status());
  EXPECT_EQ(list->attempts.back().key, (AttemptKey{1, 50, 1}));
  EXPECT_EQ(list->attempts.back().state, State::damaged);
  EXPECT_THAT(list->attempts.back().cause, HasSubstr("step-00000050/g1a1/manifest.shoal"));
}

// `shoal ls` shows what a trainer receives from the library.
TEST_F(ListedCheckpoints, AreThoseOfLs) {
  ASSERT_OK(memory->create_exclusive("step-00000050/g1a1/manifest.shoal", bytes_of("no record")).status());
  size_t omitted = 0;
  auto views = view_newest_attempts(*memory, 100, &omitted);
  auto list = list_newest_checkpoints(*memory, 100);
  ASSERT_OK(views.status());
  ASSERT_OK(list.status());
  ASSERT_EQ(views->size(), list->attempts.size());
  for (size_t i = 0; i < views->size(); ++i) {
    EXPECT_EQ((*views)[i].key, list->attempts[i].key);
    EXPECT_EQ((*views)[i].state_name(), state_name(list->attempts[i].state));
  }
}

}  // namespace
}  // namespace shoal::storage
