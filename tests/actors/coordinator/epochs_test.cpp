// Coordinators start, die, pause and resume. Nodes find the one of the last epoch, and receive one decision.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "storage/root/run_root.h"
#include "tests/actors/role_by_itself.h"
#include "tests/sim/support/job_layouts.h"
#include "tests/sim/support/patience.h"
#include "tests/sim/support/virtual_trainer.h"

namespace shoal::actors {
namespace {

using sim::kPatience;
using ::testing::HasSubstr;

NodeConfig facts_of(const std::string& host) {
  NodeConfig config;
  config.generation = 1;
  config.epoch = 1;
  config.job_id = "job-1";
  config.host = host;
  return config;
}

// A coordinator without trainers (node 0), and two hosts of two ranks each (nodes 1 and 2).
class Epochs : public ::testing::Test {
 protected:
  Epochs() : job_{host_, {}} {
    host_.add_node(facts_of("c"), true);
    for (size_t node : {1, 2}) {
      NodeConfig config = facts_of("host" + std::to_string(node));
      config.expected_ranks = {static_cast<Rank>(2 * node - 2), static_cast<Rank>(2 * node - 1)};
      host_.add_node(config, false);
    }
    const auto layouts = sim::pipeline_job(4, 1, 2);
    for (Rank rank = 0; rank < 4; ++rank) {
      job_.trainers.push_back(
          std::make_unique<sim::VirtualTrainer>(host_, 1 + rank / 2, rank, 4, layouts[rank]));
      job_.trainers.back()->declare();
    }
    job_.run(kPatience);
  }

  void save(uint64_t step) {
    for (auto& trainer : job_.trainers) trainer->save(step);
  }
  void run_for(TimeNs duration) {
    for (TimeNs passed = 0; passed < duration; passed += 100 * kMillisecond) {
      host_.run_for(100 * kMillisecond);
      for (auto& trainer : job_.trainers) trainer->listen();
    }
  }
  void expect_outcome(uint64_t step, Code code) {
    for (auto& trainer : job_.trainers) {
      ASSERT_TRUE(trainer->decided().contains({step, 1})) << step;
      EXPECT_EQ(trainer->decided().at({step, 1}).outcome.code(), code)
          << trainer->decided().at({step, 1}).outcome.to_string();
    }
  }

  sim::VirtualHost host_;
  sim::VirtualJob job_;
};

TEST_F(Epochs, ACoordinatorThatIsRestartedElsewhereIsFoundThroughTheRoot) {
  host_.kill_node(0);
  save(1);
  run_for(1'000 * kMillisecond);
  host_.add_node(facts_of("d"), true);
  run_for(20'000 * kMillisecond);
  expect_outcome(1, Code::ok);
}

TEST_F(Epochs, AZombieCoordinatorAnswersWithTheLaterOne) {
  host_.pause(0, true);
  host_.add_node(facts_of("d"), true);
  host_.pause(0, false);
  save(1);  // sent to the old one
  run_for(20'000 * kMillisecond);
  expect_outcome(1, Code::ok);
  EXPECT_TRUE(host_.retired(0));
  EXPECT_FALSE(host_.retired(3));
  save(2);
  run_for(5'000 * kMillisecond);
  expect_outcome(2, Code::ok);
}

TEST_F(Epochs, ACoordinatorStoppedInTheMiddleOfASaveChangesNothingWhenItWakesUp) {
  save(1);
  host_.run_for(500'000);  // reports are on their way
  host_.pause(0, true);
  run_for(5'000 * kMillisecond);
  host_.add_node(facts_of("d"), true);
  run_for(20'000 * kMillisecond);
  expect_outcome(1, Code::ok);
  host_.pause(0, false);
  run_for(130'000 * kMillisecond);  // beyond the deadline that the old one had set
  auto decision = storage::read_decision(host_.storage(), {1, 1, 1});
  ASSERT_TRUE(decision.ok());
  EXPECT_TRUE(decision->committed());
  EXPECT_TRUE(host_.retired(0));
}

TEST_F(Epochs, WithoutAnyCoordinatorEveryRankIsToldOnceNoneHasComeInTime) {
  host_.kill_node(0);
  host_.on_operation([&](size_t, const Operation& operation) {  // nothing of the first rank is durable
    const auto* write = std::get_if<operation::WriteShard>(&operation);
    if (write != nullptr && write->rank == 0) {
      (void)host_.storage().remove(storage::shard_path(write->key, write->rank, write->file));
    }
  });
  save(1);
  run_for(17'000 * kMillisecond);  // the loss is detected after 2.5 s
  EXPECT_TRUE(job_.trainers[0]->decided().empty());
  run_for(2'000 * kMillisecond);
  expect_outcome(1, Code::aborted);
  EXPECT_THAT(job_.trainers[0]->decided().at({1, 1}).outcome.message(), HasSubstr("received no decision"));
}

// Regression: such a save was aborted, though every rank had written it.
TEST_F(Epochs, WithoutAnyCoordinatorWhatAllRanksHaveWrittenIsCommittedOnceNoneHasComeInTime) {
  host_.kill_node(0);
  save(1);
  run_for(17'000 * kMillisecond);
  EXPECT_TRUE(job_.trainers[0]->decided().empty());
  run_for(2'000 * kMillisecond);
  expect_outcome(1, Code::ok);
}

TEST_F(Epochs, WhatACoordinatorDecidedBeforeItWasLostIsHeardFromTheRoot) {
  host_.cut(0, true);  // its decisions reach no node
  save(1);
  save(2);
  run_for(1'000 * kMillisecond);
  const Nonce nonce{};
  storage::Decision aborted{
      {1, 1, 1}, nonce, {}, 0, storage::Tombstone{storage::Tombstone::Reason::aborted, "rank 9 is unwell"}};
  ASSERT_TRUE(storage::publish_decision(host_.storage(), aborted).ok());
  run_for(12'000 * kMillisecond);  // no coordinator has started, and one still may
  expect_outcome(1, Code::aborted);
  EXPECT_EQ(job_.trainers[3]->decided().at({1, 1}).outcome.message(), "rank 9 is unwell");
  EXPECT_FALSE(job_.trainers[3]->decided().contains({2, 1})) << "that one is still open";
}

TEST_F(Epochs, AnotherJobThatTakesTheRootOverEndsEverySaveByItsName) {
  NodeConfig other = facts_of("x");
  other.generation = 2;
  other.job_id = "job-2";
  save(1);
  host_.run_for(500'000);
  host_.pause(0, true);  // before it has decided
  host_.add_node(other, true);
  run_for(5'000 * kMillisecond);
  expect_outcome(1, Code::aborted);
  EXPECT_THAT(job_.trainers[0]->decided().at({1, 1}).outcome.message(),
              HasSubstr("job 'job-2' has taken over the root"));
  save(2);
  run_for(1'000 * kMillisecond);
  expect_outcome(2, Code::aborted);
  host_.pause(0, false);
  run_for(10'000 * kMillisecond);
  EXPECT_TRUE(host_.retired(0));
}

TEST_F(Epochs, ARankWhoseNodeIsCutOffAndComesBackIsHeard) {
  host_.cut(2, true);
  save(1);
  run_for(10'000 * kMillisecond);
  EXPECT_FALSE(job_.trainers[0]->decided().contains({1, 1}));
  host_.cut(2, false);
  run_for(20'000 * kMillisecond);
  expect_outcome(1, Code::ok);
}

TEST(APlanner, FollowsTheHighestEpochOfItsJobAndNoLowerOne) {
  RoleByItself planner(make_planner(facts_of("host0")));
  planner.handle(event::PeerLost{kCoordinatorNode, Status(Code::unavailable, "gone")});
  ASSERT_TRUE(planner.answer<operation::ReadEpoch>(OperationResult(
      std::make_shared<const storage::EpochRecord>(storage::EpochRecord{3, "b:1", "job-1", {}}))));
  planner.receive(kCoordinatorNode, RoleKind::coordinator, wire::Superseded{2, "a:1"});
  EXPECT_EQ(planner.started<operation::ReadEpoch>(), 0u);
  planner.pass(500 * kMillisecond);  // still lost: it looks again
  ASSERT_TRUE(planner.answer<operation::ReadEpoch>(OperationResult(
      std::make_shared<const storage::EpochRecord>(storage::EpochRecord{3, "b:1", "job-1", {}}))));
  planner.handle(event::PeerUp{kCoordinatorNode});
  planner.pass(60'000 * kMillisecond);
  EXPECT_EQ(planner.started<operation::ReadEpoch>(), 0u);
  planner.receive(kCoordinatorNode, RoleKind::coordinator, wire::Superseded{4, "c:1"});
  ASSERT_TRUE(planner.answer<operation::ReadEpoch>(Status(Code::io, "cannot be read")));
  ASSERT_EQ(planner.redirects.size(), 3u);
  EXPECT_EQ(planner.redirects[0].address, "b:1");
  EXPECT_EQ(planner.redirects[2].address, "c:1");
}

// A launcher replaces the node of a coordinator within a second.
TEST(APlanner, LooksForTheNextCoordinatorSoonAndThenSlowerAndSlower) {
  RoleByItself planner(make_planner(facts_of("host0")));
  planner.handle(event::PeerLost{kCoordinatorNode, Status(Code::unavailable, "gone")});
  std::vector<TimeNs> waited;
  TimeNs wait = 0;
  for (int i = 0; i < 500; ++i) {
    if (planner.answer<operation::ReadEpoch>(Status(Code::io, "cannot be read"))) {
      waited.push_back(std::exchange(wait, 0) / kMillisecond);
    }
    planner.pass(100 * kMillisecond);
    wait += 100 * kMillisecond;
  }
  ASSERT_GE(waited.size(), 8u);
  EXPECT_THAT(std::vector<TimeNs>(waited.begin(), waited.begin() + 8),
              ::testing::ElementsAre(0, 500, 1000, 2000, 4000, 5000, 5000, 5000));
}

TEST(APlanner, DoesNotLookAgainWhileTheRootHasNotAnswered) {
  RoleByItself planner(make_planner(facts_of("host0")));
  planner.handle(event::PeerLost{kCoordinatorNode, Status(Code::unavailable, "gone")});
  planner.pass(60'000 * kMillisecond);
  EXPECT_EQ(planner.started<operation::ReadEpoch>(), 1u);
}

}  // namespace
}  // namespace shoal::actors
