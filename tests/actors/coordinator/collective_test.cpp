// Collective saves on virtual time. Every rank sends what it holds, the coordinator makes one roster of it,
// and each rank receives its part. The resulting checkpoint equals that of the other modes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "storage/root/run_root.h"
#include "tests/sim/support/job_layouts.h"
#include "tests/sim/support/sixteen_ranks.h"

namespace shoal::actors {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

size_t count_lines(const std::vector<std::string>& lines, size_t from, const std::string& what) {
  return static_cast<size_t>(
      std::count_if(lines.begin() + static_cast<ptrdiff_t>(from), lines.end(),
                    [&](const std::string& line) { return line.find(what) != std::string::npos; }));
}

class CollectiveSave : public sim::SixteenRanks {
 protected:
  CollectiveSave() : sim::SixteenRanks(SaveMode::collective) {
    host_.run_for(10'000 * kMillisecond);  // each node has reported its ranks
    job_.run(1);
  }
};

TEST_F(CollectiveSave, IsCommittedAndLoadsOnOtherRanks) {
  save_all(1);
  job_.run(kPatience);
  expect_committed(1);
  EXPECT_THAT(host_.transcript(), Not(Contains(HasSubstr("JoinRanks"))));
  EXPECT_THAT(host_.transcript(), Not(Contains(HasSubstr("RosterUpdate"))));
  expect_loads(1, 1);
}

TEST_F(CollectiveSave, IsGatheredInOneMessageAHostAndScatteredInOne) {
  save_all(1);
  job_.run(kPatience);
  // The fourth host is the coordinator's.
  EXPECT_EQ(count_lines(host_.transcript(), 0, "LocalPlans"), 3u);
  EXPECT_EQ(count_lines(host_.transcript(), 0, ": GlobalPlan"), 3u);
  EXPECT_EQ(count_lines(host_.transcript(), 0, "ShardsWritten"), 3u);
}

TEST_F(CollectiveSave, WritesWhatTheRuleGivesEachRankInEveryMode) {
  save_all(1);
  job_.run(kPatience);
  sim::VirtualHost other;
  sim::VirtualJob free =
      sim::VirtualJob::start(other, sim::facts_of(1), 4, kRanks, sim::pipeline_job(kRanks, 2, 2));
  for (auto& trainer : free.trainers) trainer->declare(sim::in_mode(SaveMode::collective_free));
  free.run(kPatience);
  for (auto& trainer : free.trainers) trainer->save(1);
  free.run(kPatience);
  const storage::Decision here = storage::read_decision(host_.storage(), {1, 1, 1}).value();
  const storage::Decision there = storage::read_decision(other.storage(), {1, 1, 1}).value();
  ASSERT_EQ(here.manifest().files.size(), there.manifest().files.size());
  for (size_t i = 0; i < here.manifest().files.size(); ++i) {
    EXPECT_EQ(here.manifest().files[i].name, there.manifest().files[i].name);
    EXPECT_EQ(here.manifest().files[i].header_digest, there.manifest().files[i].header_digest);
  }
}

TEST_F(CollectiveSave, PlansThatStayTravelAsTheirHash) {
  save_all(1);
  job_.run(kPatience);
  const uint64_t first = host_.wire_bytes();
  save_all(2);
  job_.run(kPatience);
  const uint64_t second = host_.wire_bytes() - first;
  expect_committed(2);
  for (auto& trainer : job_.trainers) {
    EXPECT_EQ(trainer->plans_sent(), 1u);
    EXPECT_EQ(trainer->plans_kept(), 1u);
  }
  EXPECT_LT(second, first / 2);
  EXPECT_EQ(count_lines(host_.transcript(), 0, "LayoutRequest"), 1u);  // each layout once
}

TEST_F(CollectiveSave, WhereSomeRanksChangeOnlyTheirPlansTravel) {
  save_all(1);
  job_.run(kPatience);
  // One more buffer, in a group of one rank: no other rank's assignment changes.
  const std::vector<LayoutPtr> layouts = sim::pipeline_job(kRanks, 2, 2);
  std::vector<LayoutEntry> entries = layouts[3]->entries();
  std::vector<Mesh> meshes = layouts[3]->meshes();
  meshes.push_back(Mesh::affine({1}, 3, {0}).value());
  LayoutEntry more;
  more.fqn = "zz.more";
  more.dtype = DType::f32;
  more.shape = {8};
  more.sharding = GroupSharding{static_cast<uint32_t>(meshes.size() - 1)};
  entries.push_back(more);
  job_.trainers[3]->change(make_layout(meshes, entries).value());
  save_all(2);
  job_.run(kPatience);
  expect_committed(2);
  for (Rank rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(job_.trainers[rank]->plans_kept(), rank == 3 ? 0u : 1u) << rank;
  }
  expect_loads(2, 2);
}

TEST_F(CollectiveSave, AFailureReachesEveryRankBeforeTheSlowestHasSpoken) {
  for (Rank rank = 0; rank < kRanks - 2; ++rank) job_.trainers[rank]->save(1);
  job_.run(kPatience);
  job_.trainers[14]->refuse(1, Status(Code::internal, "its planner failed"));
  host_.run_for(5'000 * kMillisecond);
  job_.run(kPatience);
  expect_aborted(1, {0, 5, 13}, "rank 14 (host host3): internal error: its planner failed");
  EXPECT_LT(host_.now(), 30'000 * kMillisecond);  // no deadline was waited for
  job_.trainers[15]->save(1);
  job_.run(kPatience);
  expect_aborted(1, {15}, "rank 14");
}

TEST_F(CollectiveSave, ATrainerThatEndsWhileOthersWaitEndsTheSave) {
  for (Rank rank = 0; rank < kRanks - 1; ++rank) job_.trainers[rank]->save(1);
  job_.run(kPatience);
  job_.trainers[6]->end();  // it had requested a plan, and staged nothing
  job_.run(kPatience);
  expect_aborted(1, {0, 4, 12}, "rank 6 (host host1): its connection to the node ended");
  EXPECT_LT(host_.now(), 30'000 * kMillisecond);
}

TEST_F(CollectiveSave, ARankThatNeverAsksIsNamedAtTheDeadline) {
  for (Rank rank = 0; rank < kRanks - 1; ++rank) job_.trainers[rank]->save(1);
  job_.run(kPatience);
  host_.run_for(200'000 * kMillisecond);
  job_.run(kPatience);
  expect_aborted(1, {0, 4, 14}, "no layout came from rank 15");
}

TEST_F(CollectiveSave, ARankThatWasToldAndStagesNothingIsNamed) {
  job_.trainers[7]->only_ask(true);
  save_all(1);
  job_.run(kPatience);
  host_.run_for(200'000 * kMillisecond);
  job_.run(kPatience);
  expect_aborted(1, {0, 15}, "rank 7 (host host1) received its plan but did not report");
}

TEST_F(CollectiveSave, AHostOfOtherOptionsIsRefusedByName) {
  SaveOptions other = sim::in_mode(SaveMode::collective);
  other.dedupe = Dedupe::none;
  for (Rank rank = 12; rank < kRanks; ++rank) job_.trainers[rank]->declare(other);
  save_all(1);
  job_.run(kPatience);
  expect_aborted(1, {0, 15}, "saves with other options than host host");
}

TEST_F(CollectiveSave, RanksOfDifferentModesAtTheFirstSaveAreNamed) {
  struct Free {
    Rank begin, end;
  };
  for (Free free : {Free{15, 16}, Free{12, 16}, Free{0, 12}}) {  // one rank of a host; a host; all but one
    SCOPED_TRACE("rank " + std::to_string(free.begin) + " and those after it save without a collective");
    sim::VirtualHost host;
    sim::VirtualJob job =
        sim::VirtualJob::start(host, sim::facts_of(1), 4, kRanks, sim::pipeline_job(kRanks, 2, 2));
    for (Rank rank = 0; rank < kRanks; ++rank) {
      const bool is_free = rank >= free.begin && rank < free.end;
      job.trainers[rank]->declare(sim::in_mode(is_free ? SaveMode::collective_free : SaveMode::collective));
    }
    for (auto& trainer : job.trainers) trainer->save(1);
    host.run_for(5'000 * kMillisecond);
    job.run(kPatience);
    for (Rank rank = 0; rank < kRanks; ++rank) {
      const auto& decided = job.trainers[rank]->decided();
      ASSERT_TRUE(decided.contains({1, 1})) << "rank " << rank << " was told nothing";
      const Status& outcome = decided.at({1, 1}).outcome;
      EXPECT_EQ(outcome.code(), Code::aborted);
      EXPECT_THAT(outcome.message(), HasSubstr("saves in another mode than"));
      EXPECT_THAT(outcome.message(), HasSubstr("rank " + std::to_string(free.begin)));
    }
    EXPECT_LT(host.now(), 30'000 * kMillisecond);  // no deadline was waited for
  }
}

TEST_F(CollectiveSave, CommitsUnderACoordinatorThatComesBackAtAnyMoment) {
  // As often as the run has steps of ten milliseconds: gathering, publishing, scattering, writing, deciding.
  for (TimeNs moment = 0; moment <= 120 * kMillisecond; moment += 4 * kMillisecond) {
    SCOPED_TRACE("killed after " + std::to_string(moment / kMillisecond) + " ms");
    sim::VirtualHost host;
    sim::VirtualJob job =
        sim::VirtualJob::start(host, sim::facts_of(1), 4, kRanks, sim::pipeline_job(kRanks, 2, 2));
    for (auto& trainer : job.trainers) trainer->declare(sim::in_mode(SaveMode::collective));
    host.run_for(20 * kMillisecond);
    for (auto& trainer : job.trainers) trainer->save(1);
    for (TimeNs t = 0; t < moment; t += kMillisecond) {
      host.run_for(kMillisecond);
      for (auto& trainer : job.trainers) trainer->listen();
    }
    host.kill_node(0);
    NodeConfig config = sim::facts_of(1);
    config.host = "host0";
    config.expected_ranks = {0, 1, 2, 3};
    const size_t node = host.add_node(config, true);
    for (Rank rank = 0; rank < 4; ++rank) job.trainers[rank]->trainers_return(node, kRanks);
    host.run_for(20'000 * kMillisecond);
    job.run(kPatience);
    host.run_for(20'000 * kMillisecond);
    job.run(kPatience);
    for (Rank rank = 0; rank < kRanks; ++rank) {
      const auto& decided = job.trainers[rank]->decided();
      ASSERT_TRUE(decided.contains({1, 1})) << "rank " << rank;
      EXPECT_TRUE(decided.at({1, 1}).outcome.ok()) << decided.at({1, 1}).outcome.to_string();
    }
  }
}

TEST_F(CollectiveSave, GoesOnWhereANodeIsStartedAgainAfterItsRanksWereTold) {
  for (Rank rank = 4; rank < 8; ++rank) job_.trainers[rank]->only_ask(true);
  save_all(1);
  job_.run(kPatience);
  host_.kill_node(1);
  for (Rank rank = 4; rank < 8; ++rank) {
    ASSERT_EQ(job_.trainers[rank]->plans_sent(), 1u);
    job_.trainers[rank]->only_ask(false);
  }
  replace_node(1, false);
  for (Rank rank = 4; rank < 8; ++rank) job_.trainers[rank]->stage_made(1);
  host_.run_for(20'000 * kMillisecond);
  job_.run(kPatience);
  expect_committed(1);
  expect_loads(1, 1);
}

}  // namespace
}  // namespace shoal::actors
