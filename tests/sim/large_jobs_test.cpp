// The cost of large jobs for the coordinator and the root, if nodes that wait send again meanwhile. Few ranks
// represent many: the cost per rank is set high.
#include <gtest/gtest.h>

#include "sim/simulation.h"
#include "tests/actors/role_by_itself.h"
#include "tests/sim/simulated.h"
#include "tests/sim/support/job_layouts.h"

namespace shoal::sim {
namespace {

SimulationReport one_save_of_512_ranks(SaveMode mode, const Profile& profile) {
  Scenario scenario;
  scenario.ranks = 512;
  scenario.mode = mode;
  scenario.saves = 1;
  auto report = simulate(scenario, profile);
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->saves.front().aborted_ranks, 0u) << report->saves.front().cause;
  return *report;
}

// How often a node requests the roster within a minute without an answer.
size_t joins_within_a_minute(uint32_t world_size) {
  actors::NodeConfig facts;
  facts.host = "host0";
  facts.world_size = world_size;
  for (Rank rank = 0; rank < 8; ++rank) facts.expected_ranks.push_back(rank);
  actors::RoleByItself planner(actors::make_planner(facts));
  const LayoutPtr layout = flat_job(8, 0).front();
  for (Rank rank : facts.expected_ranks) {
    local::Attach attach;
    attach.rank = rank;
    attach.world_size = world_size;
    planner.from_client(rank + 1, attach);
    planner.from_client(rank + 1, local::LayoutUpdate{layout, {}});
  }
  planner.pass(60'000 * actors::kMillisecond);
  return planner.sent<actors::wire::JoinRanks>(actors::kCoordinatorNode).size();
}

TEST(ALargeJob, AsksForItsRosterTheLessOftenTheMoreHostsItHas) {
  EXPECT_EQ(joins_within_a_minute(64), 10u);      // after 0.5 s, 1, 2, 4, 8, 10 ...
  EXPECT_EQ(joins_within_a_minute(131'072), 4u);  // after 8.2 s, 16.4, 32.8
}

// Sending the roster to all nodes takes 5 s here, in which each of them repeats its request.
TEST(ALargeJob, IsToldItsRosterOnceAndAskedForEachLayoutOnce) {
  Profile profile = profile_named("lustre");
  profile.cpu.codec_bytes_per_s /= 100;
  const SimulationReport report = one_save_of_512_ranks(SaveMode::collective_free, profile);
  EXPECT_GT(report.joining.coordinator.busy_ns, 3000 * actors::kMillisecond);
  EXPECT_LE(report.joining.coordinator.messages_out, report.nodes - 1 + report.layouts);
}

TEST(ALargeJob, IsToldItsPlansOnce) {
  Profile profile = profile_named("lustre");
  const uint64_t bytes =
      one_save_of_512_ranks(SaveMode::collective, profile).saves.front().costs.coordinator.bytes_out;
  profile.cpu.codec_bytes_per_s /= 400;
  const SimulationReport report = one_save_of_512_ranks(SaveMode::collective, profile);
  EXPECT_GT(report.saves.front().costs.coordinator.busy_ns, 3000 * actors::kMillisecond);
  EXPECT_LE(report.saves.front().costs.coordinator.bytes_out, bytes + bytes / 20);
}

// Listing the attempt's folder takes the metadata server 5 s here.
TEST(ALargeJob, LooksAtItsRankManifestsFromFewNodes) {
  Profile profile = profile_named("lustre");
  profile.storage.entry_ns *= 2000;
  profile.storage.look_ns *= 100;
  const SimulationReport report = one_save_of_512_ranks(SaveMode::rank_local, profile);
  EXPECT_LE(report.saves.front().costs.storage.listed, 20u * 512);
}

SimulationReport saves_of_70b(const std::string& profile, SaveMode mode, uint32_t saves) {
  Scenario scenario;
  scenario.model = "llama3-70b";
  scenario.ranks = 2048;
  scenario.profile = profile;
  scenario.mode = mode;
  scenario.saves = saves;
  return simulated(scenario);
}

// Creating the files of a save takes the one prefix of an attempt 5.6 s here.
TEST(ALargeJob, MayTakeAsLongAsItsStorageTakesToCreateItsFiles) {
  for (SaveMode mode : kModes) {
    const SimulationReport report = saves_of_70b("object-store", mode, 1);
    EXPECT_FALSE(report.violation) << report.violation->what;
    EXPECT_TRUE(report.saves.front().is_committed());
    EXPECT_GT(report.saves.front().committed.greatest, 5000 * actors::kMillisecond);
  }
}

TEST(ALargeJob, MayTakeAsLongAsASyncOfItsStorageTakes) {
  Scenario scenario;
  scenario.model = "gpt2";
  scenario.ranks = 64;
  scenario.profile_numbers = {{"storage.sync_ns", 10'000'000'000}};
  const SimulationReport report = simulated(scenario);
  EXPECT_FALSE(report.violation) << report.violation->what;
  EXPECT_TRUE(report.saves.back().is_committed());
}

// DCP plans the first save for minutes, in which the second one waits. No rank gives up.
TEST(ALargeJob, MayPlanForAsLongAsItsRanksWait) {
  const SimulationReport report = saves_of_70b("pytorch-dcp", SaveMode::collective, 2);
  EXPECT_FALSE(report.violation) << report.violation->what;
  EXPECT_TRUE(report.saves.back().is_committed());
}

}  // namespace
}  // namespace shoal::sim
