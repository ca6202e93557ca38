// More saves in flight than allowed, and nodes that were stopped and return after others have decided.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <future>

#include "tests/process/node_child.h"
#include "tests/process/trainer.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class InFlight : public ::testing::TestWithParam<uint32_t> {
 protected:
  void open(OnBusy on_busy) {
    ASSERT_NE(node_.address(), "");
    first_ = std::make_unique<Trainer>(scratch_, "a", 0, 2, "job-1", [&](CheckpointerOptions& options) {
      options.max_in_flight = GetParam();
      options.on_busy = on_busy;
    });
    second_ = std::make_unique<Trainer>(scratch_, "a", 1, 2, "job-1", [&](CheckpointerOptions& options) {
      options.max_in_flight = GetParam() + 1;
    });
    ASSERT_TRUE(first_->opened.ok() && second_->opened.ok());
    save_on_both(1);
    expect_committed();
    node_.signal(SIGSTOP);  // from here on no slab is freed
    for (uint64_t step = 2; step < 2 + GetParam(); ++step) save_on_both(step);
  }
  void save_on_both(uint64_t step) {
    for (Trainer* trainer : {first_.get(), second_.get()}) {
      auto saved = trainer->save(step);
      ASSERT_TRUE(saved.ok()) << saved.status().to_string();
      saves_.push_back(*saved);
    }
  }
  void expect_committed() {
    for (SaveHandle& save : saves_) {
      auto committed = save.wait_committed(kPatience);
      EXPECT_TRUE(committed.ok()) << to_string(save.key()) << ": " << committed.status().to_string();
    }
  }

  Scratch scratch_;
  NodeChild node_{scratch_.host("a"), {"root=" + scratch_.root(), "job=job-1", "world=2"}};
  std::unique_ptr<Trainer> first_, second_;
  std::vector<SaveHandle> saves_;
};
INSTANTIATE_TEST_SUITE_P(Of, InFlight, ::testing::Values(1u, 2u, 4u));

TEST_P(InFlight, OneMoreIsDeclinedOnEveryRankAtOnce) {
  open(OnBusy::decline);
  const uint64_t step = 2 + GetParam();
  Status declined = first_->save(step).status();
  EXPECT_EQ(declined.code(), Code::busy);
  auto in_vain = second_->save(step);  // this rank has room for it
  ASSERT_TRUE(in_vain.ok()) << in_vain.status().to_string();
  node_.signal(SIGCONT);
  expect_committed();
  Status aborted = in_vain->wait_committed(kPatience).status();  // well before the attempt's deadline
  EXPECT_EQ(aborted.code(), Code::aborted);
  EXPECT_THAT(aborted.message(), ::testing::MatchesRegex(".*rank 0 \\(host .*\\): busy.*"));
  // Both count it.
  save_on_both(step);
  expect_committed();
  for (size_t i = saves_.size() - 2; i < saves_.size(); ++i) EXPECT_EQ(saves_[i].key().attempt, 2u);
}

TEST_P(InFlight, OneMoreWaitsForASlab) {
  open(OnBusy::wait);
  const uint64_t step = 2 + GetParam();
  auto waiting = std::async(std::launch::async, [&] { return first_->save(step); });
  auto other = second_->save(step);
  ASSERT_TRUE(other.ok()) << other.status().to_string();
  saves_.push_back(*other);
  EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  node_.signal(SIGCONT);
  auto saved = waiting.get();
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  EXPECT_GT(saved->stats().seconds_waited, 0) << "how long hangs on when that thread got to run";
  saves_.push_back(*saved);
  expect_committed();
}

TEST(PausedNode, ChangesNothingThatWasDecidedWithoutIt) {
  Scratch scratch;
  NodeChild coordinator(scratch.host("a"), {"root=" + scratch.root(), "job=job-1", "world=2", "name=a",
                                            "attempt_deadline_ms=1000"});
  const std::string address = coordinator.address();
  NodeChild paused(scratch.host("b"),
                   {"root=" + scratch.root(), "job=job-1", "world=2", "name=b", "coordinator=" + address});
  ASSERT_THAT(paused.first_line(), StartsWith("ready"));
  Trainer first(scratch, "a", 0, 2), second(scratch, "b", 1, 2);
  ASSERT_TRUE(first.opened.ok() && second.opened.ok());
  auto save_on_both = [&](uint64_t step) {
    std::vector<SaveHandle> saves;
    for (Trainer* trainer : {&first, &second}) saves.push_back(trainer->save(step).value());
    return saves;
  };
  for (SaveHandle& save : save_on_both(1)) ASSERT_TRUE(save.wait_committed(kPatience).ok());

  paused.signal(SIGSTOP);
  std::vector<SaveHandle> saves = save_on_both(2);
  Status aborted = saves[0].wait_committed(kPatience).status();
  EXPECT_EQ(aborted.code(), Code::aborted);
  EXPECT_THAT(aborted.message(), HasSubstr("nothing came from rank 1 (host b) within"));
  const std::string file = scratch.root() + "/step-00000002/g1a1/manifest.shoal";
  const std::string decision = read_file(file);
  ASSERT_NE(decision, "");

  paused.signal(SIGCONT);  // and now it writes and reports
  const std::string cause = aborted.message().substr(std::string("rank 0, step 2 (g1a1): ").size());
  EXPECT_EQ(saves[1].wait_committed(kPatience).status(),
            Status(Code::aborted, "rank 1, step 2 (g1a1): " + cause));
  EXPECT_EQ(read_file(file), decision);
  EXPECT_EQ(first.checkpointer().latest().value().key.step, 1u);
  for (SaveHandle& save : save_on_both(2)) {
    auto committed = save.wait_committed(kPatience);
    ASSERT_TRUE(committed.ok()) << committed.status().to_string();
    EXPECT_EQ(committed->key, (AttemptKey{1, 2, 2}));
  }
  EXPECT_EQ(read_file(file), decision);
}

// The client has given up on the node. The same node resumes and receives the undecided saves.
TEST(PausedNode, IsAttachedToAgainWhereItsClientHadGivenItUp) {
  Scratch scratch;
  NodeChild node(scratch.host("a"), {"root=" + scratch.root(), "job=job-1", "world=1"});
  ASSERT_NE(node.address(), "");
  Trainer trainer(scratch, "a", 0, 1, "job-1", [](CheckpointerOptions& options) {
    options.node_silence = std::chrono::milliseconds(300);
  });
  ASSERT_TRUE(trainer.opened.ok());
  ASSERT_TRUE(trainer.save(1)->wait_committed(kPatience).ok());
  node.signal(SIGSTOP);
  auto given_up = trainer.save(2);
  ASSERT_TRUE(given_up.ok());
  EXPECT_THAT(given_up->wait_committed(kPatience).status().message(), HasSubstr("sent nothing for"));
  EXPECT_THAT(trainer.save(3).status().message(), HasSubstr("sent nothing for"));
  node.signal(SIGCONT);
  // The staged save is committed all the same, although its handle can no longer report it.
  auto latest = trainer.checkpointer().latest();
  for (int i = 0; i < 1000 && latest.ok() && latest->key.step != 2; ++i) {
    latest = trainer.checkpointer().latest();
  }
  ASSERT_TRUE(latest.ok()) << latest.status().to_string();
  EXPECT_EQ(latest->key.step, 2u);
  auto saved = trainer.save(4);
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  EXPECT_TRUE(saved->wait_committed(kPatience).ok());
  EXPECT_EQ(trainer.save(3)->key().attempt, 2u);
}

// A rank that loads alone while others have called the next save: its load must not wait for that save, which
// waits for this rank.
class LoneLoad : public ::testing::TestWithParam<SaveMode> {};
INSTANTIATE_TEST_SUITE_P(In, LoneLoad, ::testing::Values(SaveMode::collective_free, SaveMode::rank_local),
                         mode_test_name);

TEST_P(LoneLoad, OfTheLatestDoesNotWaitForASaveThatWaitsForItsRank) {
  Scratch scratch;
  NodeChild node{scratch.host("a"), {"root=" + scratch.root(), "job=job-1", "world=2"}};
  ASSERT_NE(node.address(), "");
  const auto in_mode = [](CheckpointerOptions& options) { options.save.mode = GetParam(); };
  Trainer first(scratch, "a", 0, 2, "job-1", in_mode), second(scratch, "a", 1, 2, "job-1", in_mode);
  ASSERT_TRUE(first.opened.ok() && second.opened.ok());
  for (uint64_t step = 1; step <= 3; ++step) {
    SCOPED_TRACE(step);
    auto early = first.save(step);
    ASSERT_TRUE(early.ok()) << early.status().to_string();
    if (step > 1) {
      second.forget();
      auto loaded = second.checkpointer().load(second.state);
      ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
      EXPECT_EQ(loaded->metadata.key.step, step - 1);
      EXPECT_TRUE(second.holds(step - 1));
      auto opened = second.checkpointer().open_checkpoint();
      ASSERT_TRUE(opened.ok()) << opened.status().to_string();
      EXPECT_EQ(opened->metadata().key.step, step - 1);
    }
    auto late = second.save(step);
    ASSERT_TRUE(late.ok()) << late.status().to_string();
    for (SaveHandle* save : {&*early, &*late}) {
      auto committed = save->wait_committed(kPatience);
      EXPECT_TRUE(committed.ok()) << committed.status().to_string();
    }
  }
}

}  // namespace
}  // namespace shoal::testing
