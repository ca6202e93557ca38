// Stragglers: which hosts are drawn, what their slowness changes, and which values are rejected.
#include "sim/jobs/stragglers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "sim/basics/random.h"
#include "sim/simulation.h"

namespace shoal::sim {
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

TEST(Stragglers, AreDrawnFromAStreamOfTheirOwn) {
  for (uint64_t seed : {0u, 1u, 7u}) {
    std::set<uint64_t> streams;
    for (Stream stream :
         {Stream::storage, Stream::arrivals, Stream::hazards, Stream::failures, Stream::stragglers}) {
      streams.insert(stream_seed(seed, stream));
    }
    EXPECT_EQ(streams.size(), 5u);
  }
  // The slow hosts of a job are those that its own stream draws.
  Scenario scenario;
  scenario.model = "gpt2";
  scenario.ranks = 64;
  scenario.ranks_per_host = 1;
  scenario.profile = "nvme";
  scenario.stragglers = {50, 3000, 1000, 1000};
  const uint64_t seed = scenario.seed;
  const std::vector<uint32_t> slow =
      draw_stragglers(scenario.stragglers, 64, stream_seed(seed, Stream::stragglers));
  EXPECT_NE(slow, draw_stragglers(scenario.stragglers, 64, stream_seed(seed, Stream::failures)));
  SimulationListeners listeners;
  std::map<size_t, actors::TimeNs> staged;  // by node: of the second save
  listeners.event = [&](actors::TimeNs now, size_t node, actors::RoleKind, const actors::Event& event,
                        size_t) {
    const auto* received = std::get_if<actors::event::FromClient>(&event);
    const auto* what = received == nullptr ? nullptr : std::get_if<local::Staged>(received->message.get());
    if (what != nullptr && what->step == 2) staged[node] = now;
  };
  auto profile = find_profile("nvme", {std::string(SHOAL_SOURCE_FOLDER) + "/sim/profiles"});
  auto report = simulate(scenario, *profile, listeners);
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(staged.size(), 64u);
  std::vector<uint32_t> late;
  for (const auto& [node, time] : staged) {
    const bool is_late = time - report->saves[1].began > 2 * report->saves[1].blocked.median;
    if (is_late) late.push_back(static_cast<uint32_t>(node));
  }
  EXPECT_EQ(late, slow);
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
  EXPECT_GT(slow.plan_received.least, even.plan_received.greatest);
}

TEST(Stragglers, AreRefusedWithReason) {
  for (const char* text : {"", "3", "0.01", "0.01:", ":3", "1.5:3", "0.01:0.5", "0.01:1001", "-1:3",
                           "0.0001:3", "0.01:3x", "1e3:4", "0.:3"}) {
    EXPECT_THAT(parse_stragglers(text).status().message(), HasSubstr("is not FRACTION:FACTOR")) << text;
  }
  auto parsed = parse_stragglers("0.125:2.5");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->hosts_permille, 125u);
  EXPECT_EQ(parsed->storage_permille, 2500u);
  auto refusal = [](const std::string& text) { return parse_scenario(text, "s.toml").status().message(); };
  EXPECT_THAT(refusal("[stragglers]\nhosts_permille = 10\ndisk = 3\n"),
              HasSubstr("s.toml:3: 'disk' is not known here"));
  EXPECT_THAT(refusal("[stragglers]\ncopy_permille = 3000\n"),
              HasSubstr("s.toml:1: stragglers need the key hosts"));
  EXPECT_THAT(refusal("[stragglers]\nhosts_permille = 10\ncopy_permille = 999\n"),
              HasSubstr("s.toml:3: copy_permille = 999: it must lie between 1000 and 1000000"));
  EXPECT_THAT(refusal("[stragglers]\nhosts_permille = 1001\n"), HasSubstr("it must lie between 0 and 1000"));
}

}  // namespace
}  // namespace shoal::sim
