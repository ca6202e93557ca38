// How replicas get their bytes, with many fast disks and with one slow disk.
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/simulation.h"
#include "tests/sim/simulated.h"

namespace shoal::sim {
namespace {

// As many replicas of gpt2 with Adam, 1.6 GiB, a host each.
LoadReport load(const Profile& profile, uint32_t replicas, LoadMethod method) {
  Scenario scenario;
  scenario.ranks = replicas;
  scenario.ranks_per_host = 1;
  scenario.model = "gpt2";
  scenario.mesh = "dp_replicate=" + std::to_string(replicas);
  scenario.saves = 1;
  scenario.loads = 1;
  scenario.load_method = method;
  auto report = simulate(scenario, profile);
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  return report->loads.at(0);
}

struct Ways {
  actors::TimeNs direct, two_stage, automatic;
  uint64_t bytes_two_stage, bytes_automatic;
  actors::TimeNs better() const { return std::min(direct, two_stage); }
};

Ways all_ways(const Profile& profile, uint32_t replicas) {
  const LoadReport direct = load(profile, replicas, LoadMethod::direct);
  const LoadReport two_stage = load(profile, replicas, LoadMethod::two_stage);
  const LoadReport automatic = load(profile, replicas, LoadMethod::automatic);
  return {direct.loaded.greatest, two_stage.loaded.greatest, automatic.loaded.greatest,
          two_stage.costs.storage.bytes_read, automatic.costs.storage.bytes_read};
}

class LoadWays : public ::testing::TestWithParam<uint32_t> {};

TEST_P(LoadWays, StorageThatGivesEachHostMoreThanPeersDoIsReadByEach) {
  Profile profile = profile_named("nvme");
  profile.network.bytes_per_s = 10'000'000'000;
  const Ways ways = all_ways(profile, GetParam());
  EXPECT_GT(ways.two_stage, ways.direct * 3 / 2);
  EXPECT_LT(ways.automatic, ways.better() * 4 / 3);
  EXPECT_GT(ways.bytes_automatic, 2 * ways.bytes_two_stage);
}

// One host alone would have its bytes from storage as soon as peers send them.
TEST_P(LoadWays, StorageThatGivesAllNoMoreThanItGivesOneIsReadOnce) {
  Profile profile = profile_named("nvme");
  profile.storage.total_bytes_per_s = profile.storage.client_bytes_per_s = 5'000'000'000;
  const Ways ways = all_ways(profile, GetParam());
  EXPECT_GT(ways.direct, ways.two_stage * 3 / 2);
  EXPECT_LT(ways.automatic, ways.better() * 23 / 20);
  EXPECT_LT(ways.bytes_automatic, ways.bytes_two_stage * 5 / 4);
}

// Then the reader of a chunk needs longer than the deadline, and nodes that only receive do not read it too.
// At the slowest setting, hosts begin more than a deadline apart.
TEST(SlowStorage, IsReadOnceByHostsThatShare) {
  Profile profile = profile_named("object-store");
  for (uint32_t replicas : {12, 32}) {
    const uint64_t once = load(profile, replicas, LoadMethod::two_stage).costs.storage.bytes_read;
    for (actors::TimeNs look_ms : {100, 400}) {
      Profile slow = profile;
      slow.storage.look_ns = look_ms * actors::kMillisecond;
      const LoadReport report = load(slow, replicas, LoadMethod::two_stage);
      EXPECT_GT(report.loaded.greatest, look_ms * 900 * actors::kMillisecond)
          << "a thousand requests, one after the other";
      EXPECT_LT(report.costs.storage.bytes_read, once * 101 / 100)
          << replicas << " replicas, " << look_ms << " ms";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Replicas, LoadWays, ::testing::Values(4, 12));

}  // namespace
}  // namespace shoal::sim
