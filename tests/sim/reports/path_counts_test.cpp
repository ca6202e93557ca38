// Paths that the roles of a simulated job take.
#include "sim/reports/path_counts.h"

#include <gtest/gtest.h>

#include "base/rare_path.h"
#include "sim/simulation.h"
#include "tests/sim/simulated.h"

namespace shoal::sim {
namespace {

PathsTaken paths_of(const Scenario& job) {
  PathCounts paths;
  SimulationListeners listeners;
  listeners.paths = &paths;
  auto report = simulate(job, profile_named("nvme"), listeners);
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  return paths.taken();
}

Scenario small_paths_job() {
  Scenario job;
  job.ranks = 8;
  job.ranks_per_host = 2;
  job.model = "tiny";
  job.profile = "nvme";
  job.saves = 3;
  job.interval_ms = 50;
  return job;
}

TEST(Paths, OfAJobWithoutFailures) {
  const PathsTaken paths = paths_of(small_paths_job());
  EXPECT_EQ(paths.at("coordinator attempt: committing on committed"), 3u);
  EXPECT_EQ(paths.at("coordinator operation: PublishDecision"), 3u);
  EXPECT_EQ(paths.at("coordinator event: Received ShardsWritten"), 4 * 3u);
  EXPECT_EQ(paths.at("shard_writer operation: WriteShard"), 8 * 3u);
  EXPECT_EQ(paths.at("shard_writer rank's save: writing on all_durable"), 8 * 3u);
  EXPECT_EQ(paths.at("rare: coordinator: aborts at the deadline"), 0u);
  EXPECT_EQ(paths.at("coordinator attempt: aborting on aborted"), 0u);
}

TEST(Paths, IncludeThoseOfProcessesThatEnded) {
  Scenario job = small_paths_job();
  job.failures.push_back({Failure::Kind::coordinates, 70, 0, 10});  // after the first save
  const PathsTaken paths = paths_of(job);
  EXPECT_EQ(paths.at("coordinator term: starting on started"), 2u);
  EXPECT_EQ(paths.at("coordinator attempt: committing on committed"), 3u);
}

TEST(Paths, IncludeThoseOfLoadsAndLaterRuns) {
  Scenario job = small_paths_job();
  job.loads = 1;
  job.load_ranks = 4;
  const PathsTaken paths = paths_of(job);
  EXPECT_EQ(paths.at("loader operation: PublishLoadChoice"), 4u);
}

// They are fields of paths.csv.
TEST(RarePaths, HaveNamesWithoutCommas) {
  const base::RarePathCounts counts;
  EXPECT_FALSE(counts.list().empty());
  for (const auto& [name, taken] : counts.list()) EXPECT_EQ(name.find(','), name.npos) << name;
}

}  // namespace
}  // namespace shoal::sim
