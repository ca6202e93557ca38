// Seeds: jobs of 8 to 64 ranks, in each mode, under lists of failures of all kinds. The oracles of
// sim/failures/oracles.h check each run.
#include <gtest/gtest.h>

#include "sim/replay.h"
#include "tests/sim/simulated.h"

namespace shoal::sim {
namespace {

using Kind = Failure::Kind;

constexpr uint64_t kFailureSeeds = 120;

Scenario of_seed(uint64_t seed) {
  Random random(seed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.ranks = 8u << random.below(4);
  scenario.ranks_per_host = 1u << random.below(4);
  scenario.mode = kModes[random.below(3)];
  scenario.model = "gpt2";
  scenario.profile = "nvme";
  scenario.saves = 2 + static_cast<uint32_t>(random.below(4));
  scenario.interval_ms = 1'000 + random.below(10'000);
  scenario.arrival_skew_ms = random.below(2) * random.below(2'000);
  scenario.failure_draws = "mixed:count=" + std::to_string(1 + random.below(12));
  return scenario;
}

TEST(FailureSeeds, ViolateNoOracle) {
  const Profile profile = profile_named("nvme");
  uint64_t committed = 0, aborted = 0;
  std::set<Kind> kinds;
  for (uint64_t seed = 1; seed <= kFailureSeeds; ++seed) {
    auto report = simulate(of_seed(seed), profile);
    ASSERT_TRUE(report.ok()) << "seed " << seed << ": " << report.status().to_string();
    if (report->violation) {
      ADD_FAILURE() << "seed " << seed << ": " << report->violation->oracle << ": " << report->violation->what
                    << "\n"
                    << replay_text(replay_of(*report, Profile(), "test"));
    }
    for (const Failure& failure : report->scenario.failures) kinds.insert(failure.kind);
    for (const SaveReport& save : report->saves) ++(save.aborted_ranks == 0 ? committed : aborted);
    if (seed % 16 == 0) {
      EXPECT_EQ(simulate(of_seed(seed), profile)->trace_hash, report->trace_hash) << "seed " << seed;
    }
  }
  EXPECT_GT(committed, kFailureSeeds / 2);  // else the seeds say nothing
  EXPECT_GT(aborted, kFailureSeeds / 2);
  EXPECT_EQ(kinds.size(), Failure::kMixedKinds) << "all that a rule need not name";
}

// Outages of a few seconds: nodes that pause, that end on their own, and that are requested to stop, each
// replaced in time. The oracle needless-abort checks each run.
TEST(FailureSeeds, ThatEndInTimeAbortNothing) {
  constexpr Kind kOutages[] = {Kind::stops, Kind::restarts, Kind::stalls, Kind::cut, Kind::coordinates};
  const Profile profile = profile_named("nvme");
  std::set<Kind> kinds;
  for (uint64_t seed = 1; seed <= kFailureSeeds; ++seed) {
    Random random(seed);
    Scenario scenario = of_seed(seed);
    scenario.failure_draws = "";
    const uint64_t hosts = scenario.ranks / std::min(scenario.ranks, scenario.ranks_per_host);
    for (uint64_t left = 1 + random.below(2); left != 0; --left) {
      Failure failure{kOutages[random.below(std::size(kOutages))], 1'000 + random.below(30'000)};
      failure.host = random.below(3) == 0 ? 0 : random.below(hosts);
      if (failure.kind != Kind::coordinates) failure.for_ms = 20 + random.below(3'000);
      if (failure.kind == Kind::cut) failure.to_hosts = 0;
      scenario.failures.push_back(failure);
      kinds.insert(failure.kind);
    }
    auto report = simulate(scenario, profile);
    ASSERT_TRUE(report.ok()) << "seed " << seed << ": " << report.status().to_string();
    if (!report->violation) continue;
    ADD_FAILURE() << "seed " << seed << ": " << report->violation->oracle << ": " << report->violation->what
                  << "\n"
                  << replay_text(replay_of(*report, Profile(), "test"));
  }
  EXPECT_EQ(kinds.size(), std::size(kOutages));
}

}  // namespace
}  // namespace shoal::sim
