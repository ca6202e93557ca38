// Layouts that change while a job runs: the save with the change commits, and no commit mixes assignments
// that do not belong together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "storage/decisions/decision.h"
#include "tests/actors/units.h"
#include "tests/sim/support/changing_job.h"

namespace shoal::actors {
namespace {

using ::testing::HasSubstr;

constexpr sim::Holding kPlain{}, kMomentum{.momentum = true}, kLazy{.lazy = true}, kShared{.shared = true};

class AJob : public ::testing::Test {
 protected:
  AJob() {
    job_.save_all(1, kPlain);
    job_.run_for(kSecond);
    EXPECT_EQ(job_.outcome(1), Code::ok);
  }
  void expect_committed(uint64_t step) {
    ASSERT_EQ(job_.outcome(step), Code::ok) << job_.cause(step);
    committed_.push_back(step);
  }
  void TearDown() override {
    for (uint64_t step : committed_) job_.expect_loadable(step);
  }

  sim::ChangingJob job_;
  std::vector<uint64_t> committed_;
};

TEST_F(AJob, ThatChangesAllItsLayoutsCommitsTheVerySaveThatBringsThem) {
  job_.save_all(2, kMomentum);
  job_.run_for(kSecond);
  expect_committed(2);
  const uint64_t staged = job_.trainer(0).bytes_staged();
  job_.save_all(3, kMomentum);  // with the plan of the new roster: each rank only its own assignment
  job_.run_for(kSecond);
  expect_committed(3);
  EXPECT_LT(job_.trainer(0).bytes_staged() - staged, staged);
  EXPECT_EQ(job_.later_rosters(), 1u);
}

TEST_F(AJob, WhoseRanksComeToTheirChangeManySecondsApartWaitsForTheLast) {
  for (Rank rank = 0; rank < 4; ++rank) {
    job_.save(rank, 2, kMomentum);
    job_.run_for(12 * kSecond);
  }
  expect_committed(2);
}

TEST_F(AJob, WhoseRanksRunAheadByASaveWithAnotherLayoutStillCommitsBoth) {
  for (Rank rank : {0u, 1u, 2u}) {
    job_.save(rank, 2, kMomentum);
    job_.run_for(3 * kSecond);
    job_.save(rank, 3, kPlain);
  }
  job_.run_for(3 * kSecond);
  job_.save(3, 2, kMomentum);
  job_.run_for(3 * kSecond);
  expect_committed(2);
  job_.save(3, 3, kPlain);
  job_.run_for(kSecond);
  expect_committed(3);
}

TEST_F(AJob, WhoseLayoutsGoBackAndForthAtEachSaveCommitsThemAll) {
  for (uint64_t step = 2; step <= 9; ++step) {
    job_.save_all(step, step % 2 == 0 ? kMomentum : kPlain);
    if (step % 3 == 0) job_.run_for(100 * kMillisecond);
  }
  job_.run_for(2 * kSecond);
  for (uint64_t step = 2; step <= 9; ++step) expect_committed(step);
  EXPECT_EQ(job_.later_rosters(), 1u) << "that of before has its own name";
}

TEST_F(AJob, ThatMakesOptimizerStateOnSomeRanksOnlyCommitsThatSave) {
  job_.save_all(2, {kPlain, kPlain, kLazy, kPlain});
  job_.run_for(kSecond);
  expect_committed(2);
  job_.save_all(3, {kLazy, kPlain, kLazy, kPlain});
  job_.run_for(kSecond);
  expect_committed(3);
}

TEST_F(AJob, WhoseReplicasDivideAgainAbortsOneSaveAndCommitsTheNext) {
  job_.save_all(2, {kShared, kPlain, kPlain, kPlain});
  job_.run_for(kSecond);
  expect_committed(2);
  uint64_t step = 3;
  size_t aborted = 0;
  for (const auto& holdings :
       {std::array{kShared, kShared, kPlain, kPlain}, std::array{kPlain, kShared, kShared, kPlain},
        std::array{kPlain, kShared, kShared, kShared}}) {
    job_.save_all(step, holdings);
    job_.run_for(kSecond);
    if (job_.outcome(step) == Code::ok) {
      committed_.push_back(step);
    } else {
      ++aborted;
      EXPECT_THAT(job_.cause(step), HasSubstr("which assigns it other pieces"));
    }
    job_.save_all(++step, holdings);
    job_.run_for(kSecond);
    expect_committed(step++);
  }
  EXPECT_GT(aborted, 0u) << "nothing was tested";
}

TEST_F(AJob, WithLayoutsThatMakeNoRosterAbortsByNameAtOnceAndGoesOnWhenTheyDo) {
  job_.save_all(2, {kMomentum, kMomentum, kPlain, kMomentum});  // no rank holds one part of w.momentum
  job_.run_for(kSecond);
  EXPECT_EQ(job_.outcome(2), Code::aborted);
  EXPECT_THAT(job_.cause(2), HasSubstr("cannot make a roster of the layouts of this save"));
  EXPECT_THAT(job_.cause(2), HasSubstr("w.momentum"));
  job_.save_all(3, kMomentum);
  job_.run_for(kSecond);
  expect_committed(3);
}

// The first roster had the layout of a later save of one rank beside those of the first save of the others.
TEST(AJobOneOfWhoseRanksRunsAheadOfTheFirstRoster, CommitsTheSavesBeforeItsChange) {
  for (const TimeNs between : {TimeNs(0), 20 * kMillisecond, kSecond}) {
    sim::ChangingJob job({kShared, kShared, kShared, kShared}, 0);
    for (uint64_t step : {1, 2}) job.save(0, step, kShared);
    job.run_for(between);
    job.save(0, 3, kPlain);
    job.run_for(kSecond);
    for (uint64_t step : {1, 2}) {
      for (Rank rank : {1u, 2u, 3u}) job.save(rank, step, kShared);
    }
    job.run_for(3 * kSecond);
    for (Rank rank : {1u, 2u, 3u}) job.save(rank, 3, kPlain);
    job.run_for(3 * kSecond);
    for (uint64_t step : {1, 2, 3}) {
      EXPECT_EQ(job.outcome(step), Code::ok) << between << ": " << job.cause(step);
    }
    for (uint64_t step : {1, 2, 3}) job.expect_loadable(step);
  }
}

// All saves of such a run were refused, also those whose layouts fit.
TEST(AJobWhoseFirstLayoutsMakeNoRoster, AbortsByNameAtOnceAndGoesOnWhenTheyDo) {
  sim::ChangingJob job({kMomentum, kMomentum, kPlain, kMomentum});
  job.save_all(1, {kMomentum, kMomentum, kPlain, kMomentum});
  job.run_for(kSecond);
  EXPECT_EQ(job.outcome(1), Code::aborted);
  EXPECT_THAT(job.cause(1), HasSubstr("cannot make a roster of the layouts of this save"));
  EXPECT_THAT(job.cause(1), HasSubstr("w.momentum"));
  job.save_all(2, kMomentum);
  job.run_for(kSecond);
  ASSERT_EQ(job.outcome(2), Code::ok) << job.cause(2);
  const uint64_t staged = job.trainer(0).bytes_staged();
  job.save_all(3, kMomentum);  // by the plan of the roster: each rank only its own assignment
  job.run_for(kSecond);
  ASSERT_EQ(job.outcome(3), Code::ok) << job.cause(3);
  EXPECT_LT(job.trainer(0).bytes_staged() - staged, staged);
  for (const uint64_t step : {2u, 3u}) job.expect_loadable(step);
}

TEST(AJobWhoseFirstLayoutsMakeNoRoster, SavesUnderALaterCoordinatorToo) {
  sim::ChangingJob job({kMomentum, kMomentum, kPlain, kMomentum});
  job.save_all(1, {kMomentum, kMomentum, kPlain, kMomentum});
  job.run_for(kSecond);
  job.kill_coordinator();
  job.run_for(kSecond);
  job.start_coordinator();
  job.run_for(10 * kSecond);
  job.save_all(2, kMomentum);
  job.run_for(10 * kSecond);
  ASSERT_EQ(job.outcome(2), Code::ok) << job.cause(2);
  job.expect_loadable(2);
}

// The trainers only declare what they hold, and declare what fits before they save.
TEST(AJobWhoseFirstLayoutsMakeNoRoster, HasTheRosterBeforeItsFirstSaveIfOthersAreDeclared) {
  sim::ChangingJob job({kMomentum, kMomentum, kPlain, kMomentum});
  job.trainer(2).change(sim::layout_of(2, kMomentum));
  job.run_for(kSecond);
  job.save_all(1, kMomentum);
  job.run_for(kSecond);
  ASSERT_EQ(job.outcome(1), Code::ok) << job.cause(1);
  EXPECT_EQ(job.later_rosters(), 0u);
  job.expect_loadable(1);
}

TEST_F(AJob, OfWhichARankNeverSavesAbortsAtTheDeadlineNamingIt) {
  for (Rank rank : {0u, 1u, 2u}) job_.save(rank, 2, kMomentum);
  job_.run_for(65 * kSecond);
  EXPECT_EQ(job_.trainer(0).decided().at({2, 1}).outcome.code(), Code::aborted);
  EXPECT_THAT(job_.cause(2), HasSubstr("nothing came from rank 3 (host "));
}

TEST_F(AJob, WhoseObjectsHaveAnotherLengthAtEachStepKeepsItsRoster) {
  for (uint64_t step = 2; step <= 4; ++step) job_.save_all(step, kPlain);
  job_.run_for(kSecond);
  for (uint64_t step = 2; step <= 4; ++step) expect_committed(step);
  EXPECT_EQ(job_.later_rosters(), 0u);
}

TEST_F(AJob, WhoseNodeIsRestartedOffersItsSlabsUnderTheRosterOfBefore) {
  job_.save(2, 2, kPlain);  // its plan is that of the first roster, and its neighbour has not staged
  job_.run_for(10 * kMillisecond);
  job_.save(0, 2, kLazy);
  job_.save(1, 2, kPlain);
  job_.kill_node_of(2);
  job_.run_for(kSecond);
  job_.save(3, 2, kPlain);
  job_.run_for(15 * kSecond);
  expect_committed(2);
}

TEST_F(AJob, WhoseNodesAndCoordinatorAreAllRestartedFindsItsRosterInTheRoot) {
  job_.save_all(2, kMomentum);
  job_.run_for(kSecond);
  expect_committed(2);
  job_.kill_coordinator();
  job_.save_all(3, kMomentum);  // written under the second roster; no coordinator receives the reports
  job_.run_for(kSecond);
  job_.kill_node_of(0);
  job_.kill_node_of(2);
  job_.start_coordinator();
  job_.run_for(20 * kSecond);
  expect_committed(3);
  job_.save_all(4, kMomentum);
  job_.run_for(kSecond);
  expect_committed(4);
}

TEST_F(AJob, UnderASecondCoordinatorHasOneRosterASave) {
  job_.save(0, 2, kMomentum);
  job_.save(1, 2, kMomentum);
  job_.run_for(kSecond);
  job_.start_coordinator();  // the first one lives on, and later learns that it is superseded
  job_.run_for(100 * kMillisecond);
  job_.save(2, 2, kMomentum);
  job_.save(3, 2, kMomentum);
  job_.run_for(30 * kSecond);
  expect_committed(2);
}

// What a rank holds is in the roster of the save before, too, but not what it divides with others.
TEST(ARankThatRunsAhead, WaitsForTheRosterOfItsOwnSave) {
  for (const auto& later :
       {std::array{kShared, kShared, kPlain, kPlain}, std::array{kShared, kPlain, kShared, kPlain},
        std::array{kShared, kShared, kShared, kShared}}) {
    sim::ChangingJob job;
    job.save_all(1, kPlain);
    job.run_for(kSecond);
    job.save(0, 2, kShared);
    job.save(0, 3, kShared);
    job.run_for(kSecond);
    for (Rank rank : {1u, 2u, 3u}) job.save(rank, 2, kPlain);
    for (Rank rank : {1u, 2u, 3u}) {
      if (later[rank].shared) job.save(rank, 3, later[rank]);  // before it receives the roster of save 2
    }
    job.run_for(kSecond);
    for (Rank rank : {1u, 2u, 3u}) {
      if (!later[rank].shared) job.save(rank, 3, later[rank]);
    }
    job.run_for(kSecond);
    for (uint64_t step : {2, 3}) EXPECT_EQ(job.outcome(step), Code::ok) << step << ": " << job.cause(step);
    for (uint64_t step : {2, 3}) job.expect_loadable(step);
  }
}

// The coordinator ends after each of the operations that a switch takes, and another one begins.
TEST(ACoordinatorKilledInTheMiddleOfASwitch, IsFollowedByOneThatCommitsIt) {
  size_t points = 0;
  for (size_t point = 1;; ++point) {
    sim::ChangingJob job;
    job.save_all(1, kPlain);
    job.run_for(kSecond);
    size_t seen = 0;
    job.host.on_operation([&](size_t node, const Operation&) {
      if (node == 0 && ++seen == point) job.host.kill_node(0);
    });
    job.save_all(2, {kLazy, kPlain, kLazy, kPlain});
    job.run_for(kSecond);
    job.host.on_operation({});
    if (seen < point) break;
    ++points;
    job.start_coordinator();
    job.run_for(30 * kSecond);
    EXPECT_EQ(job.outcome(2), Code::ok) << "killed after operation " << point << ": " << job.cause(2);
    job.save_all(3, {kLazy, kPlain, kLazy, kPlain});
    job.run_for(kSecond);
    EXPECT_EQ(job.outcome(3), Code::ok) << "killed after operation " << point << ": " << job.cause(3);
    for (uint64_t step : {2, 3}) job.expect_loadable(step);
  }
  EXPECT_GE(points, 5u);  // asks, looks for a later epoch, publishes the roster, checks files, publishes
}

}  // namespace
}  // namespace shoal::actors
