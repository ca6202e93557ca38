// Stragglers: which hosts are drawn, what their slowness changes, and what is refused.
#include "sim/jobs/stragglers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/simulation.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

TEST(Stragglers, AreSoManyOfAThousandDrawnFromTheSeed) {
  const Stragglers some{100, 2000, 1000, 1000};
  const std::vector<uint32_t> drawn = draw_stragglers(some, 200, 1);
  EXPECT_EQ(drawn.size(), 20u);
  EXPECT_TRUE(std::is_sorted(drawn.begin(), drawn.end()));
  EXPECT_EQ(std::adjacent_find(drawn.begin(), drawn.end()), drawn.end()) << "none twice";
  EXPECT_LT(drawn.back(), 200u);
  EXPECT_EQ(draw_stragglers(some, 200, 1), drawn);
  EXPECT_NE(draw_stragglers(some, 200, 2), drawn);
  EXPECT_EQ(draw_stragglers({1, 2000, 1000, 1000}, 200, 1).size(), 1u) << "one at least";
  EXPECT_EQ(draw_stragglers({1000, 2000, 1000, 1000}, 8, 1).size(), 8u);
  EXPECT_TRUE(draw_stragglers({}, 200, 1).empty());
}

SimulationReport with_stragglers(const Stragglers& stragglers, SaveMode mode) {
  Scenario scenario;
  scenario.model = "llama3-8b";
  scenario.ranks = 128;
  scenario.profile = "nvme";
  scenario.mode = mode;
  scenario.stragglers = stragglers;
  auto profile = find_profile("nvme", {std::string(SHOAL_SOURCE_FOLDER) + "/sim/profiles"});
  auto report = simulate(scenario, *profile);
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  return *report;
}

TEST(Stragglers, AreHeldAsMuchLongerAsTheirCopiesTake) {
  const SaveReport even = with_stragglers({}, SaveMode::collective_free).saves[1];
  const SaveReport slow = with_stragglers({100, 3000, 1000, 1000}, SaveMode::collective_free).saves[1];
  EXPECT_EQ(slow.blocked.least, even.blocked.least);
  EXPECT_EQ(slow.blocked.median, even.blocked.median);
  EXPECT_NEAR(static_cast<double>(slow.blocked.greatest), 3.0 * static_cast<double>(even.blocked.greatest),
              0.01 * static_cast<double>(slow.blocked.greatest));
}

TEST(Stragglers, HoldUpEveryCommitByTheirStorage) {
  const SaveReport even = with_stragglers({}, SaveMode::collective_free).saves[1];
  const SaveReport slow = with_stragglers({10, 1000, 1000, 5000}, SaveMode::collective_free).saves[1];
  EXPECT_LT(slow.written.median, even.written.greatest);
  EXPECT_GT(slow.written.greatest, 3 * even.written.median);
  EXPECT_GE(slow.committed.least, slow.written.greatest - slow.blocked.greatest);
}

TEST(Stragglers, HoldEveryRankOfACollectiveSaveByTheirNetwork) {
  const SaveReport even = with_stragglers({}, SaveMode::collective).saves[1];
  const SaveReport slow = with_stragglers({200, 1000, 1'000'000, 1000}, SaveMode::collective).saves[1];
  EXPECT_GT(slow.told.least, even.told.greatest);
}

TEST(Stragglers, AreRefusedWithReason) {
  for (const char* text : {"", "3", "0.01", "0.01:", ":3", "1.5:3", "0.01:0.5", "0.01:1001", "-1:3",
                           "0.0001:3", "0.01:3x", "1e3:4", "0.:3"}) {
    EXPECT_THAT(parse_stragglers(text).status().message(), HasSubstr("is no FRACTION:FACTOR")) << text;
  }
  auto parsed = parse_stragglers("0.125:2.5");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->hosts_permille, 125u);
  EXPECT_EQ(parsed->storage_permille, 2500u);
  auto refusal = [](const std::string& text) { return parse_scenario(text, "s.toml").status().message(); };
  EXPECT_THAT(refusal("[stragglers]\nhosts_permille = 10\ndisk = 3\n"),
              HasSubstr("s.toml:3: 'disk' means nothing"));
  EXPECT_THAT(refusal("[stragglers]\ncopy_permille = 3000\n"),
              HasSubstr("s.toml:1: stragglers have no hosts"));
  EXPECT_THAT(refusal("[stragglers]\nhosts_permille = 10\ncopy_permille = 999\n"),
              HasSubstr("s.toml:3: copy_permille = 999: it lies between 1000 and 1000000"));
  EXPECT_THAT(refusal("[stragglers]\nhosts_permille = 1001\n"), HasSubstr("it lies between 0 and 1000"));
}

}  // namespace
}  // namespace shoal
