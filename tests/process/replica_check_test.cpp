// A bit that flips in the memory of one replica: some save of the next twenty names tensor, block and ranks
// (SaveOptions::replica_check).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "tests/process/trainer.h"
#include "tests/process/two_hosts.h"

namespace shoal::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uint64_t kSavesOfARotation = 20;

// "r", 4 MiB, is the same on all ranks, beside what every Trainer has. Warnings are kept.
struct ReplicatedTrainer : Trainer {
  ReplicatedTrainer(const Scratch& scratch, Rank rank_in, uint32_t world_in, const SaveOptions& options)
      : Trainer(scratch, "a", rank_in, world_in, "job-1", [&](CheckpointerOptions& of_trainer) {
          of_trainer.save = options;
          of_trainer.on_save_warning = [](const AttemptKey&, const std::string&) {};
        }) {
    for (uint64_t i = 0; i < r.size(); ++i) r[i] = static_cast<uint32_t>(i * 2'654'435'761u);
    state.add_tensor("r", DType::u32, {1024, kMiB / 1024}, Mesh::contiguous({world}),
                     {Placement::replicate()}, r.data());
  }
  std::vector<uint32_t> r = std::vector<uint32_t>(kMiB);
};

class ReplicaCheckOf : public ::testing::TestWithParam<SaveMode> {
 protected:
  void open(uint32_t world, ReplicaCheck policy) {
    node_ = std::make_unique<NodeChild>(
        scratch_.host("a"),
        std::vector<std::string>{"root=" + scratch_.root(), "job=job-1", "world=" + std::to_string(world)});
    ASSERT_THAT(node_->first_line(), HasSubstr("ready"));
    SaveOptions options;
    options.mode = GetParam();
    options.replica_check = policy;
    for (Rank rank = 0; rank < world; ++rank) {
      trainers_.push_back(std::make_unique<ReplicatedTrainer>(scratch_, rank, world, options));
      ASSERT_TRUE(trainers_.back()->opened.ok()) << trainers_.back()->opened.status().to_string();
    }
  }
  // The outcome on each rank: the error, or OK and the warning.
  struct Outcome {
    Status status;
    std::string warning;
    uint64_t replica_bytes = 0;
  };
  std::vector<Outcome> save(uint64_t step) {
    auto saves = together(trainers_, [&](Trainer& trainer) { return trainer.save(step); });
    std::vector<Outcome> outcomes;
    for (auto& saved : saves) {
      if (!saved.ok()) {
        outcomes.push_back({saved.status(), "", 0});
        continue;
      }
      const Status status = saved->wait_committed(kPatience).status();
      outcomes.push_back({status, saved->warning(), saved->stats().replica_bytes});
    }
    return outcomes;
  }

  Scratch scratch_;
  std::unique_ptr<NodeChild> node_;
  std::vector<std::unique_ptr<ReplicatedTrainer>> trainers_;
};
INSTANTIATE_TEST_SUITE_P(In, ReplicaCheckOf,
                         ::testing::Values(SaveMode::collective_free, SaveMode::collective), mode_test_name);

TEST_P(ReplicaCheckOf, AFlippedBitIsNamedByOneSaveOfTwentyAndNoSaveFails) {
  open(4, ReplicaCheck::warn);
  trainers_[2]->r[2 * kMiB / 4 + 100] ^= 1u << 9;  // in block 2, at byte 2 MiB + 400
  std::vector<std::string> warnings;
  uint64_t compared = 0;
  for (uint64_t step = 1; step <= kSavesOfARotation; ++step) {
    const std::vector<Outcome> outcomes = save(step);
    for (const Outcome& outcome : outcomes) {
      EXPECT_TRUE(outcome.status.ok()) << outcome.status.to_string();
      EXPECT_EQ(outcome.warning, outcomes[0].warning) << "every rank gets it";
    }
    // "b" and "r" are in one stream, whose windows begin and end at whole elements.
    EXPECT_LE(outcomes[0].replica_bytes, (4 * kMiB + kColumns * 4) / kSavesOfARotation + 4);
    compared += outcomes[0].replica_bytes;
    if (!outcomes[0].warning.empty()) warnings.push_back(outcomes[0].warning);
  }
  EXPECT_EQ(compared, 4 * kMiB + kColumns * 4);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], AllOf(StartsWith("replicas differ: 'r' [0:1024, 0:1024], block 2 (bytes "),
                                 HasSubstr(" of 4194304): rank 2 (host "),
                                 HasSubstr("holds other bytes than ranks 0, 1, 3 (host ")));
}

TEST_P(ReplicaCheckOf, WithAbortTheSaveThatFindsItFailsOnEveryRankAndALaterOneCommits) {
  open(2, ReplicaCheck::abort);
  for (const Outcome& outcome : save(1)) EXPECT_TRUE(outcome.status.ok()) << outcome.status.to_string();
  trainers_[1]->r[kMiB - 1] ^= 1;
  std::optional<uint64_t> found;
  for (uint64_t step = 2; step < 2 + kSavesOfARotation && !found; ++step) {
    const std::vector<Outcome> outcomes = save(step);
    if (!outcomes[0].status.ok()) found = step;
    for (const Outcome& outcome : outcomes) {
      if (outcome.status.ok()) continue;
      EXPECT_EQ(outcome.status.code(), Code::aborted);
      EXPECT_THAT(outcome.status.message(),
                  AllOf(HasSubstr("replicas differ: 'r' [0:1024, 0:1024], block 3"), HasSubstr("rank 0"),
                        HasSubstr("and rank 1"), HasSubstr("hold different bytes")));
    }
    EXPECT_EQ(outcomes[0].status.code(), outcomes[1].status.code());
  }
  ASSERT_TRUE(found.has_value()) << "twenty saves compare everything";
  EXPECT_EQ(trainers_[0]->checkpointer().latest()->key.step, *found - 1);
  trainers_[1]->r[kMiB - 1] ^= 1;
  // The next call reports the failure once more if nobody has collected it; both ranks have.
  for (const Outcome& outcome : save(*found + 1))
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.to_string();
}

TEST(ReplicaCheckOfRanks, ReachesTheCoordinatorOfAnotherHost) {
  const Scratch scratch;
  TwoHosts job;
  job.start(scratch, "hosts", nullptr, [](CheckpointerOptions& options) {
    options.save.replica_check = ReplicaCheck::warn;
    options.on_save_warning = [](const AttemptKey&, const std::string&) {};
  });
  std::vector<std::string> warnings;
  for (uint64_t step = 1; step <= kSavesOfARotation; ++step) {
    std::vector<SaveHandle> saves;
    for (auto& trainer : job.trainers) {
      trainer->fill(step);
      if (trainer->rank == 1) trainer->b[0] = 77.0f;
      auto saved = trainer->checkpointer().save(step, trainer->state);
      ASSERT_TRUE(saved.ok()) << saved.status().to_string();
      saves.push_back(*saved);
    }
    for (SaveHandle& saved : saves) {
      const auto committed = saved.wait_committed(kPatience);
      EXPECT_TRUE(committed.ok()) << committed.status().to_string();
    }
    EXPECT_EQ(saves[0].warning(), saves[1].warning());
    if (!saves[0].warning().empty()) warnings.push_back(saves[0].warning());
  }
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0],
              AllOf(HasSubstr("'b'"), HasSubstr("rank 0 (host hosts-a) and rank 1 (host hosts-b) "
                                                "hold different bytes")));
}

TEST(ReplicaCheckOfRanks, IsRejectedInModeRankLocal) {
  CheckpointerOptions options;
  options.root = "/tmp";
  options.job_id = "job-1";
  options.start_node = false;
  options.save.mode = SaveMode::rank_local;
  options.save.replica_check = ReplicaCheck::warn;
  const auto opened = Checkpointer::open(options);
  EXPECT_EQ(opened.status().code(), Code::invalid_argument);
  EXPECT_THAT(opened.status().message(), HasSubstr("replica_check needs mode collective-free or collective"));
}

}  // namespace
}  // namespace shoal::testing
