// Trainers that read checkpoints while they train, planners, objects and replicas, in simulated jobs.
#include <gmock/gmock.h>

#include <string>

#include "tests/sim/simulated.h"

namespace shoal::sim {
namespace {

using ::testing::HasSubstr;

Scenario reading_job(SaveMode mode) {
  Scenario job;
  job.ranks = 8;
  job.ranks_per_host = 2;
  job.model = "tiny";
  job.optimizer = Optimizer::none;
  job.profile = "nvme";
  job.payload = Payload::full;
  job.mode = mode;
  job.saves = 5;
  job.interval_ms = 50;
  job.reads = 5;
  return job;
}

class JobThatReads : public ::testing::TestWithParam<SaveMode> {};
INSTANTIATE_TEST_SUITE_P(EveryMode, JobThatReads, ::testing::ValuesIn(kModes));

TEST_P(JobThatReads, FindsWhatWasSavedBetweenItsSaves) {
  uint64_t reads = 0, failed = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Scenario job = reading_job(GetParam());
    job.seed = seed;
    job.objects = 2;
    const SimulationReport report = simulated(job);
    EXPECT_FALSE(report.violation) << report.violation->what;
    reads += report.reads;
    failed += report.failed_reads;
  }
  EXPECT_GT(reads, 80u);
  EXPECT_LT(failed, reads / 2) << "only steps that do not exist are not found";
}

TEST_P(JobThatReads, ReadsWhileItsNodesRestart) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Scenario job = reading_job(GetParam());
    job.seed = seed;
    job.keep_last = 2;
    job.failure_draws = "mixed:count=3,until_ms=400,kinds=restarts/coordinates/reconnects/reads-fail";
    const SimulationReport report = simulated(job);
    EXPECT_FALSE(report.violation) << report.violation->what;
    EXPECT_GT(report.reads, 0u);
  }
}

TEST(AJobThatReads, NeedsTrueBytes) {
  Scenario job = reading_job(SaveMode::collective_free);
  job.payload = Payload::counted;
  EXPECT_THAT(validate_scenario(job).message(), HasSubstr("reads needs true bytes: set payload = \"full\""));
}

TEST(PlannersWithAGlobalPlan, GiveEachRankItsPart) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Scenario job = reading_job(SaveMode::collective);
    job.seed = seed;
    job.reads = 0;
    job.has_planners = true;
    if (seed % 2 == 0) job.failure_draws = "mixed:count=2,until_ms=300,kinds=restarts/coordinates/reconnects";
    const SimulationReport report = simulated(job);
    EXPECT_FALSE(report.violation) << report.violation->what;
    EXPECT_TRUE(report.saves.back().is_committed()) << report.saves.back().cause;
  }
}

// A copy of everything on each of two hosts.
Scenario job_with_copies(ReplicaCheck check) {
  Scenario job = reading_job(SaveMode::collective_free);
  job.reads = 0;
  job.mesh = "dp_replicate=4,tp=2";
  job.saves = 20;  // all windows
  job.replica_check = check;
  Failure flips{Failure::Kind::flips};
  flips.rank = 3;
  job.failures.push_back(flips);
  return job;
}

TEST(AFlippedBit, AbortsTheSaveWhoseWindowHasIt) {
  const SimulationReport report = simulated(job_with_copies(ReplicaCheck::abort));
  EXPECT_FALSE(report.violation) << report.violation->what;
  uint32_t aborted = 0;
  for (const SaveReport& save : report.saves) {
    if (save.is_committed()) continue;
    ++aborted;
    EXPECT_THAT(save.cause, HasSubstr("replicas differ: '"));
  }
  EXPECT_EQ(aborted, 1u) << "each byte is in one of twenty windows";
}

TEST(AFlippedBit, IsNamedWhereTheSaveCommits) {
  const SimulationReport report = simulated(job_with_copies(ReplicaCheck::warn));
  EXPECT_FALSE(report.violation) << report.violation->what;
  for (const SaveReport& save : report.saves) EXPECT_TRUE(save.is_committed());
  EXPECT_THAT(report.warnings,
              ::testing::Contains(HasSubstr("rank 3 (host host1) holds other bytes than ranks 0, 1, 2, 4")));
}

}  // namespace
}  // namespace shoal::sim
