// Operators who pin, tag, remove and collect while a simulated job saves and loads; disks on which bits flip;
// and jobs that only read.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/sim/simulated.h"

namespace shoal::sim {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using Kind = Failure::Kind;

Scenario operated_job() {
  Scenario job;
  job.ranks = 4;
  job.ranks_per_host = 2;
  job.model = "tiny";
  job.optimizer = Optimizer::none;
  job.profile = "nvme";
  job.payload = Payload::full;
  job.saves = 4;
  job.interval_ms = 1000;
  return job;
}

Failure act(Kind kind, uint64_t at_ms, uint64_t behind = 0) {
  Failure made{kind, at_ms};
  made.behind = behind;
  return made;
}

// Runs the job. All saves are committed and no oracle is violated.
SimulationReport run_soundly(const Scenario& job) {
  SimulationReport report = sim::simulated(job);
  EXPECT_FALSE(report.violation) << report.violation->oracle << ": " << report.violation->what;
  for (const SaveReport& save : report.saves) EXPECT_TRUE(save.is_committed()) << save.cause;
  return report;
}

class AnOperator : public ::testing::TestWithParam<SaveMode> {
 protected:
  Scenario job() const {
    Scenario job = operated_job();
    job.mode = GetParam();
    return job;
  }
  // Bytes of one checkpoint of that job, roughly.
  uint64_t bytes_of_one() const {
    Scenario once = job();
    once.saves = 1;
    return sim::simulated(once).bytes_stored;
  }
};
INSTANTIATE_TEST_SUITE_P(EveryMode, AnOperator, ::testing::ValuesIn(kModes));

TEST_P(AnOperator, RemovesACheckpointButNotTheNewest) {
  const uint64_t all = run_soundly(job()).bytes_stored;
  Scenario removed = job();
  removed.failures = {act(Kind::removes, 2'500, 1)};
  EXPECT_LT(run_soundly(removed).bytes_stored, all - bytes_of_one() / 2);
  Scenario refused = job();
  refused.failures = {act(Kind::removes, 2'500, 0)};
  EXPECT_EQ(run_soundly(refused).bytes_stored, all);
}

TEST_P(AnOperator, KeepsACheckpointByAPinOrATagUntilItIsRemoved) {
  Scenario without = job();
  without.keep_last = 1;
  const uint64_t one = run_soundly(without).bytes_stored;
  for (const Kind kind : {Kind::pins, Kind::tags}) {
    Scenario marked = without;
    marked.failures = {act(kind, 1'500)};
    EXPECT_GT(run_soundly(marked).bytes_stored, one + bytes_of_one() / 2);
    marked.failures.front().for_ms = 1'000;  // the next commit deletes the checkpoint
    EXPECT_LT(run_soundly(marked).bytes_stored, one + 3 * bytes_of_one() / 2) << "steps 3 and 4, not 1";
  }
}

TEST_P(AnOperator, RefusesToRemoveWhatIsPinned) {
  Scenario pinned = job();
  pinned.failures = {act(Kind::pins, 1'500), act(Kind::removes, 2'500, 1)};
  const uint64_t all = run_soundly(job()).bytes_stored;
  EXPECT_GE(run_soundly(pinned).bytes_stored, all);
}

TEST_P(AnOperator, CollectsAllButTheNewest) {
  Scenario collected = job();
  collected.failures = {act(Kind::collects, 3'500)};
  collected.failures.front().keep = 2;
  EXPECT_LT(run_soundly(collected).bytes_stored, run_soundly(job()).bytes_stored - bytes_of_one() / 2);
}

class DamagedDisk : public ::testing::TestWithParam<uint64_t> {};  // the part that is damaged
INSTANTIATE_TEST_SUITE_P(EveryPart, DamagedDisk, ::testing::Values(0, 1, 2));

TEST_P(DamagedDisk, LetsALoadFallBackOrFail) {
  Scenario job = operated_job();
  Failure rots = act(Kind::rots, 2'500);
  rots.part = GetParam();
  rots.permille = 500;
  Failure restarts = act(Kind::job_restarts, 2'600);
  restarts.hosts = 0;
  restarts.for_ms = 100;
  restarts.ranks = 4;
  job.failures = {rots, restarts};
  const SimulationReport failed = sim::simulated(job);
  EXPECT_FALSE(failed.violation) << failed.violation->what;
  EXPECT_THAT(failed.warnings, Contains(HasSubstr("failed: corrupt")));
  job.load_fallback = LoadFallback::previous;
  const SimulationReport fell_back = sim::simulated(job);
  EXPECT_FALSE(fell_back.violation) << fell_back.violation->what;
  EXPECT_THAT(fell_back.warnings,
              Contains(AllOf(HasSubstr("it passes over the newer step "), HasSubstr("is damaged"))));
  EXPECT_THAT(fell_back.warnings, Not(Contains(HasSubstr("failed: corrupt"))));
}

TEST(DamagedDisks, NeedTrueBytes) {
  Scenario job = operated_job();
  job.payload = Payload::counted;
  job.failures = {act(Kind::rots, 2'500)};
  EXPECT_THAT(validate_scenario(job).message(), HasSubstr("a failure of kind rots needs true bytes"));
  job.failures = {act(Kind::corrupts, 2'500)};
  EXPECT_THAT(validate_scenario(job).message(), HasSubstr("a failure of kind corrupts needs true bytes"));
}

TEST(ChunksOfPeers, ThatArriveWithOtherBytesAreReadFromTheStorage) {
  Scenario job = operated_job();
  job.mesh = "dp_replicate=2";  // each host holds all, and reads half of it
  job.loads = 1;
  job.load_ranks = 4;
  job.load_method = LoadMethod::two_stage;
  Failure restarts = act(Kind::job_restarts, 2'600);
  restarts.hosts = 0;
  restarts.for_ms = 100;
  restarts.ranks = 4;
  job.failures = {restarts};
  PathCounts paths;
  SimulationListeners listeners;
  listeners.paths = &paths;
  const SimulationReport sound = sim::simulated(job, listeners);
  EXPECT_FALSE(sound.violation) << sound.violation->what;
  EXPECT_FALSE(paths.taken().contains("loader event: OperationDone corrupt"));
  Failure corrupts = act(Kind::corrupts, 1);
  corrupts.hosts = 0;
  corrupts.for_ms = 100'000;
  job.failures = {corrupts, restarts};
  const SimulationReport report = sim::simulated(job, listeners);
  EXPECT_FALSE(report.violation) << report.violation->what;
  EXPECT_TRUE(paths.taken().contains("loader event: OperationDone corrupt"));
  ASSERT_EQ(report.restarts.size(), 1u);
  EXPECT_GT(report.restarts[0].loaded.greatest, 0);
  EXPECT_THAT(report.warnings, Not(Contains(HasSubstr("failed: corrupt"))));
}

// Whatever a node does not sync is lost: nothing that was reported as committed may be among it.
TEST(AStorage, ThatLosesPowerKeepsWhatWasCommitted) {
  for (const SaveMode mode : kModes) {
    Scenario job = operated_job();
    job.mode = mode;
    Failure restarts = act(Kind::job_restarts, 2'600);
    restarts.hosts = 0;  // the storage loses power too
    restarts.for_ms = 100;
    restarts.ranks = 3;
    job.failures = {restarts};
    const SimulationReport report = sim::simulated(job);
    EXPECT_FALSE(report.violation) << report.violation->what;
    ASSERT_EQ(report.restarts.size(), 1u);
    EXPECT_GT(report.restarts[0].loaded.greatest, 0) << "the second checkpoint";
    EXPECT_TRUE(report.saves.back().is_committed()) << report.saves.back().cause;
  }
}

TEST_P(AnOperator, IsJoinedByJobsThatOnlyRead) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Scenario read = job();
    read.seed = seed;
    read.readers = 3;
    read.keep_last = 1;
    Scenario alone = read;
    alone.readers = 0;
    EXPECT_NE(run_soundly(read).trace_hash, run_soundly(alone).trace_hash) << "the trace has their events";
  }
}

}  // namespace
}  // namespace shoal::sim
