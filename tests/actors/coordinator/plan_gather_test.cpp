// Custom planners with a global plan, on virtual time. The offers of all ranks reach one planner, and its
// result reaches each rank, whichever process dies meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/support/job_layouts.h"
#include "tests/sim/support/patience.h"
#include "tests/sim/support/virtual_trainer.h"

namespace shoal::actors {
namespace {

using sim::kPatience;
using ::testing::HasSubstr;

constexpr Rank kPlanner = 5;  // on the third of four hosts, of which the first coordinates

NodeConfig facts_of_run() {
  NodeConfig config;
  config.generation = config.epoch = 1;
  return config;
}

class PlanGathering : public ::testing::Test {
 protected:
  static constexpr uint32_t kRanks = 8;

  PlanGathering()
      : job_(sim::VirtualJob::start(host_, facts_of_run(), 4, kRanks, sim::pipeline_job(kRanks, 2, 2))) {
    SaveOptions options;
    options.mode = SaveMode::collective;
    for (auto& trainer : job_.trainers) {
      trainer->declare(options);
      trainer->exchange_first(kPlanner);
    }
  }

  void save_all(uint64_t step) {
    for (auto& trainer : job_.trainers) trainer->save(step);
  }
  void expect_committed(uint64_t step) {
    for (Rank rank = 0; rank < kRanks; ++rank) {
      const sim::VirtualTrainer& trainer = *job_.trainers[rank];
      ASSERT_TRUE(trainer.decided().contains({step, 1})) << "rank " << rank;
      const Status& outcome = trainer.decided().at({step, 1}).outcome;
      EXPECT_TRUE(outcome.ok()) << outcome.to_string();
      ASSERT_TRUE(trainer.sent_by_planner().contains(step)) << "rank " << rank;
      EXPECT_EQ(trainer.sent_by_planner().at(step), sim::VirtualTrainer::made_for(rank, step));
    }
  }
  void expect_aborted(uint64_t step, const std::vector<Rank>& ranks, const std::string& cause) {
    for (Rank rank : ranks) {
      const sim::VirtualTrainer& trainer = *job_.trainers[rank];
      ASSERT_TRUE(trainer.decided().contains({step, 1})) << "rank " << rank;
      const Status& outcome = trainer.decided().at({step, 1}).outcome;
      EXPECT_EQ(outcome.code(), Code::aborted);
      EXPECT_THAT(outcome.message(), HasSubstr(cause));
    }
  }
  void replace_node(uint32_t host, bool coordinates) {
    NodeConfig config = facts_of_run();
    config.host = "host" + std::to_string(host);
    config.expected_ranks = {2 * host, 2 * host + 1};
    const size_t node = host_.add_node(config, coordinates);
    for (Rank rank : config.expected_ranks) {
      job_.trainers[rank]->trainers_return(node, kRanks);
      host_.run_for(sim::kBetweenReturnsNs);
    }
  }
  // Listening all the while.
  void pass(TimeNs time) {
    for (TimeNs t = 0; t < time; t += kMillisecond) {
      host_.run_for(kMillisecond);
      for (auto& trainer : job_.trainers) trainer->listen();
    }
  }

  sim::VirtualHost host_;
  sim::VirtualJob job_;
};

TEST_F(PlanGathering, TellsEachRankWhatOnePlannerMadeOfAll) {
  for (uint64_t step : {1, 2}) {
    save_all(step);
    job_.run(kPatience);
    expect_committed(step);
  }
  for (Rank rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(job_.trainers[rank]->plans_made(), rank == kPlanner ? 2u : 0u);
  }
}

TEST_F(PlanGathering, IsOneMessageAHostToTheCoordinatorAndOneBack) {
  save_all(1);
  job_.run(kPatience);
  size_t lines = 0;
  for (const std::string& line : host_.transcript()) {
    if (line.find(": PlanGathering") != std::string::npos) ++lines;
  }
  // Offered by three other hosts, gathered, made, and sent to three hosts. Messages within the coordinator's
  // host do not count.
  EXPECT_EQ(lines, 3u + 1u + 1u + 3u);
}

TEST_F(PlanGathering, APlannerThatFailsEndsTheSaveForAll) {
  job_.trainers[kPlanner]->fail_to_make_plans();
  save_all(1);
  job_.run(kPatience);
  expect_aborted(1, {0, 2, 4, 7}, "rank 5 (host host2): internal error: its planner makes no plans");
  EXPECT_LT(host_.now(), 30'000 * kMillisecond);  // no deadline was waited for
}

TEST_F(PlanGathering, ATrainerThatEndsWhileOthersWaitEndsTheSave) {
  for (Rank rank = 0; rank < kRanks - 1; ++rank) job_.trainers[rank]->save(1);
  pass(50 * kMillisecond);
  job_.trainers[2]->end();
  job_.run(kPatience);
  expect_aborted(1, {0, 3, 4}, "rank 2 (host host1): its connection to the node ended");
  EXPECT_LT(host_.now(), 30'000 * kMillisecond);
  host_.run_for(10'000 * kMillisecond);  // its node waits for rank 7 before it sends anything
  job_.run(kPatience);
  expect_aborted(1, {6}, "rank 2 (host host1): its connection to the node ended");
}

TEST_F(PlanGathering, ARankThatOffersNothingIsNamedAtTheDeadline) {
  for (Rank rank = 0; rank < kRanks - 1; ++rank) job_.trainers[rank]->save(1);
  host_.run_for(200'000 * kMillisecond);
  job_.run(kPatience);
  expect_aborted(1, {0, 4, 6}, "rank 7 did not send its local plan within 2 min");
}

TEST_F(PlanGathering, RanksWithoutAGlobalPlanAmongThemAreNamedAtOnce) {
  for (Rank rank = 0; rank < kRanks; ++rank) {
    if (rank >= 6)
      job_.trainers[rank] = std::make_unique<sim::VirtualTrainer>(host_, 3, rank, kRanks,
                                                                  sim::pipeline_job(kRanks, 2, 2)[rank]);
  }
  SaveOptions options;
  options.mode = SaveMode::collective;
  for (Rank rank : {6, 7}) job_.trainers[rank]->declare(options);
  save_all(1);
  job_.run(kPatience);
  expect_aborted(1, {0, 4, 6}, "make a global plan, but those of host");
  EXPECT_LT(host_.now(), 30'000 * kMillisecond);
}

TEST_F(PlanGathering, HostsThatNameDifferentCoordinatorRanksAreNamed) {
  for (Rank rank : {6, 7}) job_.trainers[rank]->exchange_first(0);
  save_all(1);
  job_.run(kPatience);
  expect_aborted(1, {0, 4, 6}, "sets coordinator_rank");
}

// The node of the planner dies before any rank has its result, and its ranks connect to the next node. To
// that node, the offer of the other rank is as new as the result.
TEST_F(PlanGathering, AnOfferToTheNextNodeOfThePlannerIsSaidAtOnce) {
  save_all(1);
  while (job_.trainers[kPlanner]->plans_made() == 0) pass(kMillisecond);
  host_.kill_node(2);
  pass(5'000 * kMillisecond);
  ASSERT_FALSE(job_.trainers[0]->sent_by_planner().contains(1));
  const TimeNs begun = host_.now();
  replace_node(2, false);
  pass(1'000 * kMillisecond);
  expect_committed(1);
  EXPECT_LT(host_.now() - begun, 2'000 * kMillisecond);
}

// Gathering, planning, telling, and all that follows.
class PlanExchangeAtAnyMoment : public PlanGathering, public ::testing::WithParamInterface<TimeNs> {};

TEST_P(PlanExchangeAtAnyMoment, CommitsUnderACoordinatorThatComesBack) {
  save_all(1);
  pass(GetParam());
  host_.kill_node(0);
  replace_node(0, true);
  pass(20'000 * kMillisecond);
  job_.run(kPatience);
  expect_committed(1);
}

TEST_P(PlanExchangeAtAnyMoment, CommitsWhereThePlannersNodeIsStartedAgain) {
  save_all(1);
  pass(GetParam());
  host_.kill_node(2);
  replace_node(2, false);
  pass(20'000 * kMillisecond);
  job_.run(kPatience);
  expect_committed(1);
}

INSTANTIATE_TEST_SUITE_P(By, PlanExchangeAtAnyMoment,
                         ::testing::Range<TimeNs>(0, 24 * kMillisecond, kMillisecond),
                         [](const auto& at) { return std::to_string(at.param / kMillisecond) + "ms"; });

}  // namespace
}  // namespace shoal::actors
