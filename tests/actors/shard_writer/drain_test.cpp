// Ranks that stage nothing more, because their trainer has ended or their node was requested to stop. No
// other rank waits for them, and saves that all ranks have staged are still committed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/actors/role_by_itself.h"
#include "tests/sim/support/job_layouts.h"
#include "tests/sim/support/sixteen_ranks.h"
#include "tests/sim/support/virtual_trainer.h"

namespace shoal::actors {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kHosts = 3;

// Three hosts of one rank each; that of rank 0 coordinates.
class ThreeHosts : public ::testing::Test {
 protected:
  explicit ThreeHosts(sim::VirtualDelays delays = {}) : host_(delays), job_{host_, {}} {
    for (Rank rank = 0; rank < kHosts; ++rank) {
      NodeConfig config;
      config.generation = 1;
      config.epoch = 1;
      config.job_id = "job-1";
      config.host = "host" + std::to_string(rank);
      config.world_size = kHosts;
      config.expected_ranks = {rank};
      host_.add_node(config, rank == 0);
    }
  }
  size_t new_node(Rank rank) {
    NodeConfig config;
    config.generation = 1;
    config.job_id = "job-1";
    config.host = "host" + std::to_string(rank);
    config.expected_ranks = {rank};
    return host_.add_node(config, rank == 0);
  }
  void attach(Rank rank) {
    job_.trainers.push_back(
        std::make_unique<sim::VirtualTrainer>(host_, rank, rank, kHosts, sim::flat_job(kHosts, 0)[rank]));
    job_.trainers.back()->declare(options_);
  }
  void attach_all() {
    for (Rank rank = 0; rank < kHosts; ++rank) attach(rank);
    run_for(1'000 * kMillisecond);
  }
  void run_for(TimeNs duration) {
    for (TimeNs passed = 0; passed < duration; passed += 10 * kMillisecond) {
      host_.run_for(10 * kMillisecond);
      for (auto& trainer : job_.trainers) trainer->listen();
    }
  }
  void stop_all() {
    for (size_t node = 0; node < kHosts; ++node) host_.drain(node);
  }
  // A new node replaces the node of this host. Its trainer finds it half a second later.
  void follow(Rank rank) {
    const size_t node = new_node(rank);
    run_for(500 * kMillisecond);
    job_.trainers[rank]->trainers_return(node, kHosts);
  }
  // The same, and its trainer finds it at once.
  void follow_at_once(Rank rank) { job_.trainers[rank]->trainers_return(new_node(rank), kHosts); }
  // The outcome that the n-th attached trainer received for its first save of this step.
  Status notified(size_t n, uint64_t step) const {
    const auto& decided = job_.trainers[n]->decided();
    auto found = decided.find({step, 1});
    return found == decided.end() ? Status(Code::unavailable, "nothing yet") : found->second.outcome;
  }

  sim::VirtualHost host_;
  sim::VirtualJob job_;
  SaveOptions options_;
};

TEST_F(ThreeHosts, HearAtOnceOfARankThatEndedBeforeItEverAttached) {
  attach(0);
  attach(1);
  for (auto& trainer : job_.trainers) trainer->save(1);
  host_.end_trainer(2, 2, "exit status 7");
  run_for(1'000 * kMillisecond);
  for (size_t n : {0, 1}) {
    EXPECT_EQ(notified(n, 1).message(),
              "rank 2 (host host2): its trainer ended before it staged this save: exit status 7");
    job_.trainers[n]->save(2);
  }
  run_for(1'000 * kMillisecond);
  EXPECT_THAT(notified(0, 2).message(), HasSubstr("rank 2 (host host2): its trainer ended"));
  EXPECT_THAT(notified(1, 2).message(), HasSubstr("rank 2 (host host2): its trainer ended"));
}

TEST_F(ThreeHosts, HearAtOnceOfARankThatEndedBetweenSaves) {
  attach_all();
  host_.end_trainer(2, 2, "signal 9 (Killed)");
  job_.trainers[2]->end();
  run_for(100 * kMillisecond);
  for (size_t n : {0, 1}) job_.trainers[n]->save(1);
  run_for(100 * kMillisecond);
  EXPECT_THAT(notified(0, 1).message(), HasSubstr("rank 2 (host host2): its trainer ended"));
  EXPECT_THAT(notified(1, 1).message(), HasSubstr("signal 9 (Killed)"));
}

TEST_F(ThreeHosts, CommitWhatARankStagedBeforeItEnded) {
  attach_all();
  for (auto& trainer : job_.trainers) trainer->save(1);
  host_.run_for(5'000);  // staged, and not written
  job_.trainers[2]->end();
  host_.end_trainer(2, 2, "exit status 0");
  run_for(1'000 * kMillisecond);
  EXPECT_EQ(notified(0, 1), ok_status());
  EXPECT_EQ(notified(1, 1), ok_status());
}

TEST_F(ThreeHosts, AreToldWhichRanksNeverCame) {
  attach(0);
  attach(2);
  for (auto& trainer : job_.trainers) trainer->save(1);
  run_for(119'000 * kMillisecond);
  EXPECT_EQ(notified(0, 1).message(), "nothing yet");
  run_for(2'000 * kMillisecond);
  for (size_t n : {0, 1}) {
    EXPECT_THAT(
        notified(n, 1).message(),
        AllOf(HasSubstr("no layout came from rank 1 within"), HasSubstr("ranks 0, 2 sent their layouts"),
              HasSubstr("rank 0 is on host host0, rank 2 is on host host2")));
  }
}

TEST_F(ThreeHosts, FindTheirRosterLateAndCommitWhatTheyHadStagedBefore) {
  attach(0);
  attach(2);
  for (auto& trainer : job_.trainers) trainer->save(1);
  run_for(60'000 * kMillisecond);
  attach(1);
  run_for(5'000 * kMillisecond);
  EXPECT_EQ(notified(0, 1).message(), "nothing yet");  // it has declared its layout and staged nothing
  job_.trainers[2]->save(1);
  run_for(1'000 * kMillisecond);
  for (size_t n : {0, 1, 2}) EXPECT_EQ(notified(n, 1), ok_status());
}

TEST_F(ThreeHosts, ThatAreStoppedTogetherWaitForNobodyWhoHasLeft) {
  attach_all();
  for (size_t n : {0, 1}) job_.trainers[n]->save(1);
  run_for(100 * kMillisecond);
  for (auto& trainer : job_.trainers) trainer->end();
  run_for(10 * kMillisecond);
  stop_all();
  run_for(100 * kMillisecond);
  const auto decision = storage::read_decision(host_.storage(), {1, 1, 1});
  ASSERT_TRUE(decision.ok()) << decision.status().to_string();
  EXPECT_EQ(decision->tombstone().cause,
            "rank 2 (host host2): the node of its host is stopping, and the rank has not staged this save");
  for (size_t node = 0; node < kHosts; ++node) EXPECT_TRUE(host_.drained(node)) << node;
}

// Regression: it was aborted, which it would not have been had all nodes been killed.
TEST_F(ThreeHosts, ThatAreStoppedTogetherLeaveToTheNextNodesWhatATrainerHasNotStaged) {
  attach_all();
  for (size_t n : {0, 1}) job_.trainers[n]->save(1);
  run_for(100 * kMillisecond);
  stop_all();
  run_for(6'000 * kMillisecond);
  EXPECT_EQ(storage::read_decision(host_.storage(), {1, 1, 1}).status().code(), Code::not_found);
  for (size_t node = 0; node < kHosts; ++node) {
    EXPECT_TRUE(host_.drained(node)) << node;
    host_.kill_node(node);
  }
  for (Rank rank = 0; rank < kHosts; ++rank) follow(rank);
  run_for(10'000 * kMillisecond);
  job_.trainers[2]->save(1);
  run_for(10'000 * kMillisecond);
  for (size_t n : {0, 1, 2}) EXPECT_EQ(notified(n, 1), ok_status()) << n;
}

// Regression: a node whose coordinator had ended first published tombstones of what all had staged.
TEST_F(ThreeHosts, ThatAreStoppedAfterTheirCoordinatorLeaveWhatIsStagedToTheNextOnes) {
  attach_all();
  for (auto& trainer : job_.trainers) trainer->save(1);
  host_.run_for(5'000);  // staged, and not written
  host_.kill_node(0);
  run_for(3'000 * kMillisecond);
  for (size_t node : {1, 2}) host_.drain(node);
  run_for(6'000 * kMillisecond);
  EXPECT_EQ(storage::read_decision(host_.storage(), {1, 1, 1}).status().code(), Code::not_found);
  for (size_t node : {1, 2}) {
    EXPECT_TRUE(host_.drained(node)) << node;
    host_.kill_node(node);
  }
  for (Rank rank = 0; rank < kHosts; ++rank) follow(rank);
  run_for(10'000 * kMillisecond);
  for (size_t n : {0, 1, 2}) EXPECT_EQ(notified(n, 1), ok_status()) << n;
}

TEST_F(ThreeHosts, ThatAreStoppedBeforeThereIsARosterWaitForNoRankThatHasNotAttached) {
  attach(0);
  attach(1);
  for (auto& trainer : job_.trainers) trainer->save(1);
  run_for(1'000 * kMillisecond);
  stop_all();
  run_for(100 * kMillisecond);
  EXPECT_THAT(notified(0, 1).message(), HasSubstr("rank 2 (host host2): the node of its host is stopping"));
  for (size_t node = 0; node < kHosts; ++node) EXPECT_TRUE(host_.drained(node)) << node;
}

// Their trainers have ended, as at the end of a job: no other node comes.
TEST_F(ThreeHosts, ThatAreStoppedAfterOneWasLostGiveUpWhatItWasToReport) {
  attach_all();
  for (size_t n : {0, 1}) job_.trainers[n]->save(1);
  run_for(100 * kMillisecond);
  host_.kill_node(2);
  run_for(5'000 * kMillisecond);  // the loss is detected by now; the host may come back
  EXPECT_EQ(notified(0, 1).message(), "nothing yet");
  for (size_t n : {0, 1}) job_.trainers[n]->end();
  for (size_t node : {0, 1}) host_.drain(node);
  run_for(6'000 * kMillisecond);
  const auto decision = storage::read_decision(host_.storage(), {1, 1, 1});
  ASSERT_TRUE(decision.ok()) << decision.status().to_string();
  EXPECT_THAT(decision->tombstone().cause,
              HasSubstr("nothing came from rank 2 (host host2) before the coordinator was stopped"));
  EXPECT_TRUE(host_.drained(0) && host_.drained(1));
}

// Only the coordinator's node is requested to stop, and its trainers live: another node replaces it.
class ThreeHostsWhoseCoordinatorIsStopped : public ThreeHosts, public ::testing::WithParamInterface<Rank> {
 protected:
  void stop_coordinator() {
    host_.drain(0);
    run_for(6'000 * kMillisecond);
    EXPECT_TRUE(host_.drained(0));
    EXPECT_EQ(storage::read_decision(host_.storage(), {1, 1, 1}).status().code(), Code::not_found);
    host_.kill_node(0);
  }
  void start_coordinator() {
    follow_at_once(0);
    run_for(10'000 * kMillisecond);
  }
};

TEST_P(ThreeHostsWhoseCoordinatorIsStopped, CommitWithTheNextOneWhatOneRankHadNotStaged) {
  attach_all();
  for (Rank rank = 0; rank < kHosts; ++rank) {
    if (rank != GetParam()) job_.trainers[rank]->save(1);
  }
  run_for(1'000 * kMillisecond);
  stop_coordinator();
  start_coordinator();
  EXPECT_EQ(notified(1, 1).message(), "nothing yet");
  job_.trainers[GetParam()]->save(1);
  run_for(10'000 * kMillisecond);
  for (size_t n : {0, 1, 2}) EXPECT_EQ(notified(n, 1), ok_status()) << n;
}

INSTANTIATE_TEST_SUITE_P(RankThatIsLate, ThreeHostsWhoseCoordinatorIsStopped, ::testing::Values(0u, 1u, 2u));

TEST_F(ThreeHosts, CommitWhatAllHaveStagedThoughTheCoordinatorIsStopped) {
  attach_all();
  for (auto& trainer : job_.trainers) trainer->save(1);
  host_.run_for(5'000);  // staged, and not written
  host_.drain(0);
  run_for(1'000 * kMillisecond);
  for (size_t n : {0, 1, 2}) EXPECT_EQ(notified(n, 1), ok_status());
  EXPECT_TRUE(host_.drained(0));
}

// --- hosts that are lost ---

TEST_F(ThreeHosts, AbortASaveThatWaitsForAHostThatDied) {
  attach_all();
  for (size_t n : {0, 1}) job_.trainers[n]->save(1);
  run_for(100 * kMillisecond);
  host_.kill_node(2);
  run_for(16'000 * kMillisecond);  // 2.5 s until it is known
  EXPECT_EQ(notified(0, 1).message(), "nothing yet");
  run_for(3'000 * kMillisecond);
  const auto names_the_host =
      AllOf(HasSubstr("host host2 (rank 2) is lost"),
            HasSubstr(": neither its node nor its trainers came back within 15.00 s"));
  for (size_t n : {0, 1}) {
    EXPECT_EQ(notified(n, 1).code(), Code::aborted);
    EXPECT_THAT(notified(n, 1).message(), names_the_host);
    job_.trainers[n]->save(2);
  }
  run_for(1'000 * kMillisecond);
  EXPECT_THAT(notified(0, 2).message(), names_the_host);
}

TEST_F(ThreeHosts, CommitWhatAHostHadReportedBeforeItDied) {
  attach_all();
  for (size_t n : {1, 2}) job_.trainers[n]->save(1);
  run_for(1'000 * kMillisecond);
  host_.kill_node(2);
  run_for(60'000 * kMillisecond);
  job_.trainers[0]->save(1);
  run_for(1'000 * kMillisecond);
  for (size_t n : {0, 1}) EXPECT_EQ(notified(n, 1), ok_status());
}

// Regression: such a save was aborted after 15 s, and its shards were swept.
TEST_F(ThreeHosts, CommitWhatAHostHadWrittenThoughItDiedBeforeItsReport) {
  attach_all();
  host_.on_operation([&](size_t node, const Operation& operation) {
    if (node == 2 && std::holds_alternative<operation::WriteShard>(operation)) host_.kill_node(2);
  });
  for (auto& trainer : job_.trainers) trainer->save(1);
  run_for(16'000 * kMillisecond);  // 2.5 s until it is known
  ASSERT_FALSE(host_.alive(2));
  EXPECT_EQ(notified(0, 1).message(), "nothing yet");
  run_for(3'000 * kMillisecond);
  for (size_t n : {0, 1}) EXPECT_EQ(notified(n, 1), ok_status());
}

TEST_F(ThreeHosts, CommitWhatAllHadWrittenThoughTheCoordinatorsHostDied) {
  attach_all();
  size_t written = 0;
  host_.on_operation([&](size_t, const Operation& operation) {
    written += std::holds_alternative<operation::WriteShard>(operation);
    if (written == kHosts) host_.kill_node(0);
  });
  for (auto& trainer : job_.trainers) trainer->save(1);
  run_for(20'000 * kMillisecond);
  ASSERT_FALSE(host_.alive(0));
  for (size_t n : {1, 2}) EXPECT_EQ(notified(n, 1), ok_status());
}

TEST_F(ThreeHosts, CommitWhereTheNodeThatEndedIsFollowedInTime) {
  attach_all();
  for (auto& trainer : job_.trainers) trainer->save(1);
  host_.run_for(5'000);  // staged, and not written
  host_.kill_node(2);
  run_for(12'000 * kMillisecond);
  EXPECT_EQ(notified(0, 1).message(), "nothing yet");
  follow_at_once(2);
  run_for(20'000 * kMillisecond);
  for (size_t n : {0, 1, 2}) EXPECT_EQ(notified(n, 1), ok_status());
}

// The node has a new session, and no save in flight to report.
TEST_F(ThreeHosts, WaitForAHostWhoseSessionBrokeAndStandsAgain) {
  attach_all();
  host_.cut(2, true);
  run_for(4'000 * kMillisecond);
  host_.cut(2, false);
  run_for(30'000 * kMillisecond);
  for (size_t n : {0, 1}) job_.trainers[n]->save(1);
  run_for(30'000 * kMillisecond);
  EXPECT_EQ(notified(0, 1).message(), "nothing yet");
  job_.trainers[2]->save(1);
  run_for(1'000 * kMillisecond);
  for (size_t n : {0, 1, 2}) EXPECT_EQ(notified(n, 1), ok_status());
}

TEST_F(ThreeHosts, AbortWhatWaitsForACoordinatorWhoseHostDied) {
  attach_all();
  for (size_t n : {1, 2}) job_.trainers[n]->save(1);
  run_for(100 * kMillisecond);
  host_.kill_node(0);
  run_for(16'000 * kMillisecond);
  EXPECT_EQ(notified(1, 1).message(), "nothing yet");
  run_for(3'000 * kMillisecond);
  for (size_t n : {1, 2}) {
    EXPECT_EQ(notified(n, 1).code(), Code::aborted);
    EXPECT_THAT(notified(n, 1).message(),
                HasSubstr("received no decision within 15.00 s: it lost the coordinator"));
  }
}

// A new coordinator knows nothing of the host that died with the old one.
TEST_F(ThreeHosts, AbortWhatWaitsForAHostThatDiedWithTheCoordinatorBeforeTheNextOneCame) {
  attach_all();
  job_.trainers[1]->save(1);
  run_for(100 * kMillisecond);
  host_.kill_node(0);
  host_.kill_node(2);
  follow_at_once(0);
  job_.trainers[0]->save(1);
  run_for(10'000 * kMillisecond);
  EXPECT_EQ(notified(1, 1).message(), "nothing yet");
  run_for(10'000 * kMillisecond);
  EXPECT_EQ(notified(1, 1).message(), "the host of rank 2 is lost: no node has joined for it within 15.00 s");
}

TEST_F(ThreeHosts, WhoseNodeIsStoppedAloneMayHaveAnotherInItsPlace) {
  attach_all();
  for (size_t n : {0, 1}) job_.trainers[n]->save(1);
  run_for(100 * kMillisecond);
  host_.drain(2);
  run_for(1'000 * kMillisecond);
  ASSERT_TRUE(host_.drained(2));
  host_.kill_node(2);
  follow_at_once(2);
  run_for(10'000 * kMillisecond);
  EXPECT_EQ(notified(0, 1).message(), "nothing yet");
  job_.trainers[2]->save(1);
  run_for(1'000 * kMillisecond);
  for (size_t n : {0, 1, 2}) EXPECT_EQ(notified(n, 1), ok_status());
}

// Regression: a node that was killed could be replaced three times as late as one that was stopped.
TEST_F(ThreeHosts, WhoseNodeIsStoppedAloneMayBeFollowedAsLateAsOneThatWasKilled) {
  attach_all();
  for (size_t n : {0, 1}) job_.trainers[n]->save(1);
  run_for(100 * kMillisecond);
  host_.drain(2);
  run_for(1'000 * kMillisecond);
  host_.kill_node(2);
  run_for(11'000 * kMillisecond);
  follow(2);
  run_for(10'000 * kMillisecond);
  EXPECT_EQ(notified(0, 1).message(), "nothing yet");
  job_.trainers[2]->save(1);
  run_for(1'000 * kMillisecond);
  for (size_t n : {0, 1, 2}) EXPECT_EQ(notified(n, 1), ok_status());
}

TEST_F(ThreeHosts, WhoseNodeIsStoppedAloneAreHeardOfByTheOthers) {
  attach_all();
  for (size_t n : {0, 1}) job_.trainers[n]->save(1);
  run_for(100 * kMillisecond);
  host_.drain(2);
  host_.run_for(1'000 * kMillisecond);
  host_.kill_node(2);
  run_for(6'000 * kMillisecond);
  EXPECT_EQ(notified(0, 1).message(), "nothing yet");
  run_for(9'000 * kMillisecond);
  for (size_t n : {0, 1}) {
    EXPECT_THAT(notified(n, 1).message(), HasSubstr("rank 2 (host host2): the node of its host is stopping"));
    job_.trainers[n]->save(2);
  }
  run_for(1'000 * kMillisecond);
  EXPECT_THAT(notified(0, 2).message(), HasSubstr("rank 2 (host host2): the node of its host is stopping"));
}

// Regression: in mode collective no node joins. A host whose node had been replaced was considered lost, or
// still stopping, until a save of the new node was reported.
class ThreeHostsOfEachMode : public ThreeHosts, public ::testing::WithParamInterface<SaveMode> {
 protected:
  ThreeHostsOfEachMode() {
    options_ = sim::in_mode(GetParam());
    attach_all();
    for (auto& trainer : job_.trainers) trainer->save(1);
    run_for(5'000 * kMillisecond);
    for (size_t n : {0, 1, 2}) EXPECT_EQ(notified(n, 1), ok_status());
  }
  // Host `last` comes to this save a second after the others.
  void expect_commits(uint64_t step, Rank last) {
    for (Rank rank = 0; rank < kHosts; ++rank) {
      if (rank != last) job_.trainers[rank]->save(step);
    }
    run_for(1'000 * kMillisecond);
    job_.trainers[last]->save(step);
    run_for(5'000 * kMillisecond);
    for (size_t n : {0, 1, 2}) EXPECT_EQ(notified(n, step), ok_status()) << n;
  }
};

TEST_P(ThreeHostsOfEachMode, CommitWithANodeThatWasKilledAndFollowedBetweenSaves) {
  host_.kill_node(2);
  run_for(5'000 * kMillisecond);
  follow(2);
  run_for(30'000 * kMillisecond);
  expect_commits(2, 2);
}

TEST_P(ThreeHostsOfEachMode, CommitWithACoordinatorThatWasKilledAndFollowedBetweenSaves) {
  host_.kill_node(0);
  run_for(5'000 * kMillisecond);
  follow(0);
  run_for(30'000 * kMillisecond);
  expect_commits(2, 0);
}

TEST_P(ThreeHostsOfEachMode, CommitWithANodeThatWasStoppedAndFollowedBetweenSaves) {
  host_.drain(2);
  run_for(1'000 * kMillisecond);
  host_.kill_node(2);
  follow(2);
  run_for(30'000 * kMillisecond);
  expect_commits(2, 2);
}

TEST_P(ThreeHostsOfEachMode, CommitThoughTheHostThatCameBackHeardOfAnAbortFirst) {
  host_.kill_node(2);
  run_for(5'000 * kMillisecond);
  for (size_t n : {0, 1}) job_.trainers[n]->save(2);
  run_for(20'000 * kMillisecond);
  EXPECT_THAT(notified(0, 2).message(), HasSubstr("host2"));
  follow(2);
  job_.trainers[2]->save(2);
  run_for(20'000 * kMillisecond);
  EXPECT_EQ(notified(2, 2).code(), Code::aborted);
  expect_commits(3, 2);
}

INSTANTIATE_TEST_SUITE_P(Mode, ThreeHostsOfEachMode,
                         ::testing::Values(SaveMode::collective_free, SaveMode::collective),
                         [](const auto& mode) {
                           return mode.param == SaveMode::collective ? "Collective" : "CollectiveFree";
                         });

// A coordinator on a host without trainers is requested to stop; trainers on other hosts go on.
TEST(ACoordinatorWithoutTrainers, LeavesWhatIsUndecidedToTheNextOne) {
  sim::VirtualHost host;
  NodeConfig config;
  config.generation = 1;
  config.job_id = "job-1";
  config.world_size = 2;
  config.host = "host9";
  host.add_node(config, true);
  sim::VirtualJob job{host, {}};
  for (Rank rank : {0u, 1u}) {
    config.host = "host" + std::to_string(rank);
    config.expected_ranks = {rank};
    const size_t node = host.add_node(config, false);
    job.trainers.push_back(
        std::make_unique<sim::VirtualTrainer>(host, node, rank, 2, sim::flat_job(2, 0)[rank]));
    job.trainers.back()->declare();
  }
  job.run(100 * kMillisecond);
  job.trainers[0]->save(1);
  host.run_for(1'000 * kMillisecond);
  host.drain(0);
  host.run_for(10'000 * kMillisecond);
  EXPECT_FALSE(host.drained(0));  // it may be decided here
  host.run_for(6'000 * kMillisecond);
  EXPECT_TRUE(host.drained(0));
  EXPECT_EQ(storage::read_decision(host.storage(), {1, 1, 1}).status().code(), Code::not_found);
  host.kill_node(0);
  config.host = "host9";
  config.expected_ranks.clear();
  host.add_node(config, true);
  host.run_for(8'000 * kMillisecond);
  job.trainers[1]->save(1);
  host.run_for(1'000 * kMillisecond);
  EXPECT_TRUE(storage::read_decision(host.storage(), {1, 1, 1}).value().committed());
}

// Writing takes longer than any timeout.
class ThreeSlowHosts : public ThreeHosts {
 protected:
  static sim::VirtualDelays slow() {
    sim::VirtualDelays delays;
    delays.operation_ns = 20'000 * kMillisecond;
    return delays;
  }
  ThreeSlowHosts() : ThreeHosts(slow()) {}
};

TEST_F(ThreeSlowHosts, AreNotTakenForLost) {
  attach_all();
  run_for(60'000 * kMillisecond);
  for (auto& trainer : job_.trainers) trainer->save(1);
  run_for(200'000 * kMillisecond);
  for (size_t n : {0, 1, 2}) EXPECT_EQ(notified(n, 1), ok_status());
}

TEST_F(ThreeSlowHosts, CommitWhatAllHaveStagedThoughTheyAreStoppedTogether) {
  attach_all();
  run_for(60'000 * kMillisecond);
  for (auto& trainer : job_.trainers) ASSERT_TRUE(trainer->has_roster());
  for (auto& trainer : job_.trainers) trainer->save(1);
  host_.run_for(100 * kMillisecond);
  stop_all();
  run_for(10'000 * kMillisecond);
  for (size_t node = 0; node < kHosts; ++node) EXPECT_FALSE(host_.drained(node)) << node;
  run_for(200'000 * kMillisecond);
  for (size_t n : {0, 1, 2}) EXPECT_EQ(notified(n, 1), ok_status());
  for (size_t node = 0; node < kHosts; ++node) EXPECT_TRUE(host_.drained(node)) << node;
}

NodeConfig facts_of_two_ranks() {
  NodeConfig config;
  config.generation = 1;
  config.epoch = 1;
  config.host = "host0";
  config.expected_ranks = {0, 1};
  return config;
}

TEST(AShardWriterThatStops, NamesItsRanksEvenThoseThatNeverAttached) {
  RoleByItself role(make_shard_writer(facts_of_two_ranks()));
  role.handle(event::Drain{});
  EXPECT_TRUE(role.drained);
  const auto received = role.sent<wire::RanksEnded>(kCoordinatorNode);
  ASSERT_EQ(received.size(), 1u);
  ASSERT_EQ(received[0].ranks.size(), 2u);
  EXPECT_EQ(received[0].ranks[1].rank, 1u);
  EXPECT_EQ(received[0].ranks[1].end, "");
  EXPECT_TRUE(received[0].staged.empty());
}

TEST(AShardWriterThatNobodyNeeds, LeavesItsRanksToTheNextNode) {
  RoleByItself role(make_shard_writer(facts_of_two_ranks()));
  role.handle(event::Drain{.by_request = false});
  EXPECT_TRUE(role.drained);
  EXPECT_TRUE(role.sends.empty());
}

NodeConfig facts_of_a_node_without_launcher() {
  NodeConfig config = facts_of_two_ranks();
  config.expected_ranks.clear();
  return config;
}

local::Attach attach_of(Rank rank) {
  local::Attach attach;
  attach.rank = rank;
  attach.world_size = 2;
  return attach;
}

// Regression: the coordinator waited host_lost_ms for the rank, and the next run for the coordinator.
TEST(AShardWriterWhoseTrainerVanished, ReportsItsEndOnceTheNextRunStarts) {
  RoleByItself role(make_shard_writer(facts_of_a_node_without_launcher()));
  role.from_client(3, attach_of(1));
  role.handle(event::ClientLost{3});
  role.pass(100 * kMillisecond);
  for (const auto& sent : role.sent<wire::RanksEnded>(kCoordinatorNode)) EXPECT_TRUE(sent.ranks.empty());
  role.sends.clear();
  role.handle(event::NextRunStarts{});
  role.handle(event::Drain{.by_request = false});
  EXPECT_TRUE(role.drained);
  const auto received = role.sent<wire::RanksEnded>(kCoordinatorNode);
  ASSERT_EQ(received.size(), 1u);
  ASSERT_EQ(received[0].ranks.size(), 1u);
  EXPECT_EQ(received[0].ranks[0].rank, 1u);
  EXPECT_EQ(received[0].ranks[0].end, "it has left, and another run starts on its host");
}

TEST(AShardWriterWhoseTrainerVanished, ReportsItsEndAtOnceAfterTheNextRunHasAsked) {
  RoleByItself role(make_shard_writer(facts_of_a_node_without_launcher()));
  role.from_client(3, attach_of(1));
  role.handle(event::NextRunStarts{});
  role.sends.clear();
  role.handle(event::ClientLost{3});
  role.pass(100 * kMillisecond);
  const auto received = role.sent<wire::RanksEnded>(kCoordinatorNode);
  ASSERT_FALSE(received.empty());
  EXPECT_EQ(received.back().ranks.at(0).end, "it has left, and another run starts on its host");
}

// Somebody tried another run by mistake, long ago.
TEST(AShardWriterWhoseTrainerVanished, AwaitsItIfTheRunWentOnAfterTheNextOneHadAsked) {
  RoleByItself role(make_shard_writer(facts_of_a_node_without_launcher()));
  role.handle(event::NextRunStarts{});
  role.from_client(3, attach_of(1));
  role.sends.clear();
  role.handle(event::ClientLost{3});
  role.pass(100 * kMillisecond);
  for (const auto& sent : role.sent<wire::RanksEnded>(kCoordinatorNode)) EXPECT_TRUE(sent.ranks.empty());
}

TEST(AShardWriterWhoseTrainerVanished, ReportsItsEndWhenNobodyNeedsTheNode) {
  RoleByItself role(make_shard_writer(facts_of_a_node_without_launcher()));
  role.from_client(3, attach_of(1));
  role.handle(event::ClientLost{3});
  role.pass(5'000 * kMillisecond);
  role.sends.clear();
  role.handle(event::Drain{.by_request = false});
  const auto received = role.sent<wire::RanksEnded>(kCoordinatorNode);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_THAT(received[0].ranks.at(0).end, ::testing::HasSubstr("no trainer was left on its host"));
}

TEST(AShardWriterWhoseTrainerClosed, LeavesItsRankToTheNextNode) {
  RoleByItself role(make_shard_writer(facts_of_a_node_without_launcher()));
  role.from_client(3, attach_of(1));
  role.from_client(3, local::Detach{});
  role.handle(event::ClientLost{3});
  role.pass(5'000 * kMillisecond);
  role.sends.clear();
  role.handle(event::Drain{.by_request = false});
  EXPECT_TRUE(role.sent<wire::RanksEnded>(kCoordinatorNode).empty());
}

TEST(AShardWriterWhoseTrainerEnded, SaysSoUntilTheRankIsBack) {
  RoleByItself role(make_shard_writer(facts_of_two_ranks()));
  role.handle(event::TrainerEnded{1, "exit status 1"});
  role.pass(60'000 * kMillisecond);
  const size_t received = role.sent<wire::RanksEnded>(kCoordinatorNode).size();
  EXPECT_GE(received, 5u);
  EXPECT_LE(received, 15u);
  EXPECT_EQ(role.sent<wire::RanksEnded>(kCoordinatorNode)[0].ranks.at(0).end, "exit status 1");
  role.sends.clear();
  local::Attach attach;
  attach.rank = 1;
  attach.world_size = 2;
  role.from_client(3, attach);
  role.pass(60'000 * kMillisecond);
  ASSERT_EQ(role.sent<wire::RanksEnded>(kCoordinatorNode).size(), 1u);
  EXPECT_TRUE(role.sent<wire::RanksEnded>(kCoordinatorNode)[0].ranks.empty());
}

}  // namespace
}  // namespace shoal::actors
