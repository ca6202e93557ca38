// Seeds: jobs of 8 to 64 ranks, in each mode, under lists of faults of all kinds. The oracles of
// sim/failures/oracles.h look at each run.
#include <gtest/gtest.h>

#include "sim/replay.h"

namespace shoal {
namespace {

constexpr uint64_t kSeeds = 120;
constexpr SaveMode kModes[] = {SaveMode::collective_free, SaveMode::rank_local, SaveMode::collective};

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

TEST(FaultSeeds, ViolateNoOracle) {
  auto profile = find_profile("nvme", {std::string(SHOAL_SOURCE_FOLDER) + "/sim/profiles"});
  ASSERT_TRUE(profile.ok());
  uint64_t committed = 0, aborted = 0;
  std::set<Fault::Kind> kinds;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    auto report = simulate(of_seed(seed), *profile);
    ASSERT_TRUE(report.ok()) << "seed " << seed << ": " << report.status().to_string();
    if (report->violation) {
      ADD_FAILURE() << "seed " << seed << ": " << report->violation->oracle << ": " << report->violation->what
                    << "\n"
                    << replay_text(replay_of(*report, Profile(), "test"));
    }
    for (const Fault& fault : report->scenario.failures) kinds.insert(fault.kind);
    for (const SaveReport& save : report->saves) ++(save.aborted_ranks == 0 ? committed : aborted);
    if (seed % 16 == 0) {
      EXPECT_EQ(simulate(of_seed(seed), *profile)->trace_hash, report->trace_hash) << "seed " << seed;
    }
  }
  EXPECT_GT(committed, kSeeds / 2);  // else the seeds say nothing
  EXPECT_GT(aborted, kSeeds / 2);
  EXPECT_EQ(kinds.size(), Fault::kKinds);
}

}  // namespace
}  // namespace shoal
