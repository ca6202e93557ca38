// A job id that is used again: the earlier run with this id is a different run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/process/trainer.h"

namespace shoal::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

class RunAgain : public ::testing::Test {
 protected:
  void begin(uint32_t world = 1) {
    node_ = std::make_unique<NodeChild>(
        scratch_.host("a"),
        std::vector<std::string>{"root=" + scratch_.root(), "job=job-1", "world=" + std::to_string(world),
                                 "log=" + scratch_.file("a.log")});
    ASSERT_NE(node_->address(), "") << node_->first_line();
    trainer_ = std::make_unique<Trainer>(scratch_, "a", 0, world);
    ASSERT_TRUE(trainer_->opened.ok()) << trainer_->opened.status().to_string();
  }
  void end() {
    trainer_.reset();
    node_->signal(SIGTERM);
    ASSERT_EQ(node_->wait(), 0);
  }
  // The key under which all of "w" is `value` at this step now.
  AttemptKey save_all(float value, uint64_t step) {
    std::fill(trainer_->w.begin(), trainer_->w.end(), value);
    auto saved = trainer_->checkpointer().save(step, trainer_->state);
    if (!saved.ok()) ADD_FAILURE() << saved.status().to_string();
    if (!saved.ok()) return {};
    auto committed = saved->wait_committed(kPatience);
    EXPECT_TRUE(committed.ok()) << committed.status().to_string();
    return saved->key();
  }

  Scratch scratch_;
  std::unique_ptr<NodeChild> node_;
  std::unique_ptr<Trainer> trainer_;
};

TEST_F(RunAgain, LoadsTheNewestCheckpointAndNotWhatTheRunBeforeChose) {
  begin();
  EXPECT_EQ(trainer_->checkpointer().load(trainer_->state).status().code(), Code::not_found);
  save_all(1, 1);
  end();
  begin();
  auto loaded = trainer_->checkpointer().load(trainer_->state);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_THAT(trainer_->w, Each(1.0f));
}

// Regression: step 1 became the latest instead of step 50 without a message.
TEST_F(RunAgain, AfreshOverACheckpointIsAWarningThatNamesIt) {
  begin();
  save_all(1, 50);
  end();
  EXPECT_THAT(read_file(scratch_.file("a.log")), Not(HasSubstr("without having loaded a checkpoint")));
  begin();
  save_all(2, 1);
  end();
  EXPECT_THAT(
      read_file(scratch_.file("a.log")),
      HasSubstr("this run saves step 1 without having loaded a checkpoint, but the root has step 50 (g1a1)"));
}

TEST_F(RunAgain, FromTheLatestIsNoWarning) {
  begin();
  save_all(1, 50);
  end();
  begin();
  ASSERT_TRUE(trainer_->checkpointer().load_or_start(trainer_->state)->has_value());
  save_all(2, 51);
  end();
  EXPECT_THAT(read_file(scratch_.file("a.log")), Not(HasSubstr("without having loaded a checkpoint")));
}

TEST_F(RunAgain, CommitsItsOwnBytesForAStepThatTheRunBeforeCommitted) {
  begin();
  EXPECT_EQ(save_all(1, 7), (AttemptKey{1, 7, 1}));
  end();
  begin();
  EXPECT_EQ(save_all(2, 7), (AttemptKey{2, 7, 1}));
  trainer_->forget();
  ASSERT_TRUE(trainer_->checkpointer().load(trainer_->state).ok());
  EXPECT_THAT(trainer_->w, Each(2.0f));
}

TEST_F(RunAgain, IsAGenerationOfItsOwnAlsoWithAnotherWorldSize) {
  begin(1);
  save_all(1, 1);
  end();
  begin(2);
  EXPECT_EQ(trainer_->checkpointer().generation(), 2u);
}

}  // namespace
}  // namespace shoal::testing
