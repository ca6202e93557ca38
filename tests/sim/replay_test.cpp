// Drawn failures, the recording of a run, and that its replay gives the same run.
#include "sim/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "sim/basics/random.h"
#include "sim/basics/toml_tree.h"
#include "sim/failures/failure_draws.h"
#include "sim/reports/event_text.h"

namespace shoal::sim {
namespace {

using ::testing::HasSubstr;

Profile nvme() {
  auto profile = find_profile("nvme", {std::string(SHOAL_SOURCE_FOLDER) + "/sim/profiles"});
  EXPECT_TRUE(profile.ok()) << profile.status().to_string();
  return *profile;
}

Scenario job_to_replay() {
  Scenario scenario;
  scenario.ranks = 16;
  scenario.ranks_per_host = 4;
  scenario.model = "gpt2";
  scenario.profile = "nvme";
  scenario.saves = 3;
  scenario.interval_ms = 2'000;
  return scenario;
}

// --- draws ---

TEST(Random, DrawsExponentialAndWeibullTimesOfTheirQuantiles) {
  constexpr uint64_t kMean = 1'000'000'000'000;
  for (double p : {0.000001, 0.01, 0.25, 0.5, 0.75, 0.99, 0.999999}) {
    const auto u = static_cast<uint64_t>((1 - p) * 18446744073709551616.0);
    const double exponential = -std::log1p(-p) * kMean;
    EXPECT_NEAR(static_cast<double>(exponential_at(u, kMean)) / exponential, 1, 1e-5) << p;
    for (uint32_t shape : {500, 780, 1000, 2000}) {
      const double weibull = std::pow(-std::log1p(-p), 1000.0 / shape) * kMean;
      EXPECT_NEAR(static_cast<double>(weibull_at(u, kMean, shape)) / weibull, 1, 1e-3) << p << " " << shape;
    }
  }
  EXPECT_EQ(exponential_at(0, ~uint64_t{0} >> 1), ~uint64_t{0} >> 1);  // 44 means do not fit
  Random random(1);
  double sum = 0;
  for (int i = 0; i < 10'000; ++i) sum += static_cast<double>(random.exponential(1'000'000));
  EXPECT_NEAR(sum / 10'000, 1e6, 3e4);
}

std::vector<Failure> drawn(const std::string& rules, DrawnJob job) {
  auto failures = draw_failures(parse_failure_rules(rules).value(), job);
  EXPECT_TRUE(failures.ok()) << failures.status().to_string();
  return *failures;
}

TEST(DrawnFailures, ComeAtTheirRates) {
  const DrawnJob job{10'000, 80'000, 3'600'000, 7};
  // An hour of 10,000 hosts: 1 - exp(-1/100) of them, and of the Weibull 1 - exp(-(1/100)^0.5).
  EXPECT_NEAR(static_cast<double>(drawn("poisson:mtbf_node_hours=100", job).size()), 99.5, 25);
  EXPECT_NEAR(static_cast<double>(drawn("weibull:k=0.5,scale_node_hours=100", job).size()), 951.6, 90);
}

TEST(DrawnFailures, TakeRacksAndNeighboursAlong) {
  const DrawnJob job{1000, 8000, 3'600'000, 7};
  size_t racks = 0;
  for (const Failure& failure : drawn("poisson:mtbf_rack_hours=10,rack_hosts=8", job)) {
    EXPECT_EQ(failure.host % 8, 0u);
    EXPECT_EQ(failure.hosts, 8u);
    ++racks;
  }
  EXPECT_NEAR(static_cast<double>(racks), 11.9, 10);
  const size_t alone = drawn("poisson:mtbf_node_hours=50", job).size();
  const size_t spread = drawn("poisson:mtbf_node_hours=50,rack_hosts=8,spread_permille=1000", job).size();
  EXPECT_GT(alone, 0u);
  EXPECT_GT(spread, 4 * alone);
  EXPECT_EQ(spread % 8, 0u) << "whole racks";
}

TEST(DrawnFailures, AreRefusedByReason) {
  auto refusal = [](const std::string& text) { return parse_failure_rules(text).status().message(); };
  EXPECT_THAT(refusal("often"), HasSubstr("'often' must begin with poisson:, weibull: or mixed:"));
  EXPECT_THAT(refusal("poisson:"), HasSubstr("poisson: needs a mtbf_node_hours"));
  EXPECT_THAT(refusal("poisson:k=0.78"), HasSubstr("'k' is not known here"));
  EXPECT_THAT(refusal("weibull:k=0.0,scale_node_hours=5"), HasSubstr("k: '0.0' is not a number from 0.1"));
  EXPECT_THAT(refusal("mixed:count=0"), HasSubstr("count: '0' is not a number from 1"));
  EXPECT_THAT(refusal("mixed:count=2,kinds=stalls/melts"), HasSubstr("kinds: 'melts' is not a kind"));
  EXPECT_THAT(refusal("poisson:mtbf_rack_hours=5"), HasSubstr("racks need rack_hosts"));
  EXPECT_THAT(parse_scenario("ranks = 8\nfailures = \"mixed:many\"\n", "s.toml").status().message(),
              HasSubstr("s.toml:2: failures: 'many': expected KEY=VALUE"));
}

// --- as files ---

TEST(Scenarios, AreReadBackAsTheyArePrinted) {
  size_t files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(SHOAL_SOURCE_FOLDER) + "/sim/scenarios")) {
    auto scenario = parse_scenario(*read_text(entry.path()), entry.path());
    ASSERT_TRUE(scenario.ok()) << scenario.status().to_string();
    auto again = parse_scenario(scenario_text(*scenario), "again");
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(*again, *scenario) << scenario_text(*scenario);
    ++files;
  }
  EXPECT_GT(files, 0u);
}

TEST(AScenario, IsReadBackWithAllOfItsKeys) {
  const std::string text =
      "ranks = 24\nranks_per_host = 2\nmesh = \"dp=24\"\nmodel = \"gpt2\"\nmode = \"collective\"\nsaves = 1\n"
      "profile = \"nvme\"\ninterval_ms = 8\narrival_skew_ms = 9\narrival_skew_us = 12\nseed = 10\n"
      "unit_bytes = 4096\nmax_in_flight = 3\nslab_bytes = 65536\nparts_permille = 300\n"
      "max_direct_nodes = 11\nkeep_last = 2\noptimizer = \"none\"\nloads = 2\n"
      "load_ranks = 12\nload_mesh = \"dp=12\"\nlater_mesh = \"dp=12,tp=2\"\nlater_mesh_from = 3\nreads = 4\n"
      "later_mesh_stages = 1\n"
      "planners = \"global\"\nreplica_check = \"abort\"\nobjects = 3\nnode_start = \"trainers\"\n"
      "close_when = \"decided\"\nkeep_every = 2\ndedupe = \"none\"\n"
      "max_restarts = 4\ndetect_ms = 5\nrestart_after_ms = 6\nrestart_ranks = 12\nrestart_mesh = \"dp=12\"\n"
      "readers = 2\nload_fallback = \"previous\"\n"
      "load_method = \"two-stage\"\npayload = \"full\"\nfailures = \"mixed:count=2\"\n"
      "[set]\nstorage.sync_ns = 7\n\"cpu.shared_cores\" = 2\n[stragglers]\nhosts_permille = 3\ncopy_permille "
      "= 4000\n"
      "network_permille = 5000\nstorage_permille = 6000\n[[failure]]\nat_ms = 3\nkind = \"dies\"\nhost = 1\n";
  auto scenario = parse_scenario(text, "all.toml");
  ASSERT_TRUE(scenario.ok()) << scenario.status().to_string();
  const std::string printed = scenario_text(*scenario);
  for (const std::string_view key : scenario_keys()) {
    if (key == "replay") continue;  // of a file that a failing run wrote
    EXPECT_THAT("\n" + printed, ::testing::ContainsRegex("\n\\[*" + std::string(key) + "( = |\\])"));
  }
  auto again = parse_scenario(printed, "again.toml");
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(*again, *scenario) << printed;
}

// All but the tables of failures, which --failures draws, and the mark of a replay file.
TEST(AScenario, TakesItsKeysFromTheCommandLine) {
  constexpr std::string_view kUnknown = "no_such_key";
  auto answer = [](std::string_view key) {
    Scenario scenario;
    return set_value(scenario, key, "no value of any key").message();
  };
  for (const std::string_view key : scenario_keys()) {
    std::string unknown = answer(kUnknown);
    unknown.replace(unknown.find(kUnknown), kUnknown.size(), key);
    EXPECT_EQ(answer(key) == unknown, key == "failure" || key == "replay") << key;
  }
}

TEST(ARun, DoesTheSameWithItsDrawnFailuresInAList) {
  Scenario scenario = job_to_replay();
  scenario.failure_draws = "mixed:count=6";
  scenario.seed = 3;
  auto drawn_run = simulate(scenario, nvme());
  ASSERT_TRUE(drawn_run.ok()) << drawn_run.status().to_string();
  EXPECT_EQ(drawn_run->scenario.failures.size(), 6u);
  auto whole = with_all_failures(scenario);
  ASSERT_TRUE(whole.ok());
  auto listed = parse_scenario(scenario_text(*whole), "listed.toml");
  ASSERT_TRUE(listed.ok()) << listed.status().to_string();
  EXPECT_EQ(listed->failure_draws, "");
  auto listed_run = simulate(*listed, nvme());
  ASSERT_TRUE(listed_run.ok());
  EXPECT_EQ(listed_run->trace_hash, drawn_run->trace_hash);
  scenario.seed = 4;
  EXPECT_NE(simulate(scenario, nvme())->trace_hash, drawn_run->trace_hash);
}

TEST(AReplay, SaysWhetherARunDidTheSameAgain) {
  Scenario scenario = job_to_replay();
  scenario.failures = {{Failure::Kind::restarts, 2'010, 1, 300}};
  const SimulationReport report = *simulate(scenario, nvme());
  const std::string text = replay_text(replay_of(report, nvme(), "0.1.0"));
  auto replay = parse_replay(text, "r.toml");
  ASSERT_TRUE(replay.ok()) << replay.status().to_string();
  EXPECT_EQ(replay->scenario, scenario);
  EXPECT_EQ(profile_text(replay->profile), profile_text(nvme()));
  EXPECT_EQ(difference(*replay, *simulate(replay->scenario, replay->profile)), "");
  replay->scenario.failures.clear();
  EXPECT_THAT(difference(*replay, *simulate(replay->scenario, replay->profile)), HasSubstr("now it is "));
  SimulationReport violated = report;
  violated.violation = Violation{"bounds", 5, "too much"};
  EXPECT_THAT(difference(*replay, violated), HasSubstr("the violated oracle was none, but now it is bounds"));
  EXPECT_TRUE(check_version(*replay, "0.1.0").ok());
  EXPECT_EQ(check_version(*replay, "0.2.0").code(), Code::version);
  EXPECT_THAT(check_version(*replay, "0.2.0").message(), HasSubstr("version 0.1.0, but this is 0.2.0"));
}

TEST(AReplay, IsRefusedByFileLineAndReason) {
  auto refusal = [](const std::string& text) { return parse_replay(text, "r.toml").status().message(); };
  EXPECT_THAT(refusal("ranks = 8\n"), HasSubstr("r.toml:1: it has no [replay]"));
  EXPECT_THAT(refusal("ranks = 8\n[replay]\nversion = \"1\"\ntrace = \"xyz\"\n"),
              HasSubstr("r.toml:2: trace = 'xyz' is not a hash"));
  EXPECT_THAT(refusal("ranks = 8\n[replay]\nspeed = 1\n"), HasSubstr("r.toml:3: 'speed' is not known here"));
  EXPECT_THAT(refusal("ranks = 8\n[replay]\ntrace = \"1\"\nprofile = \"name = 3\"\n"),
              HasSubstr("r.toml (its profile):1: name"));
}

TEST(AReplay, HasALineForEachEventFailureAndAnswer) {
  Scenario scenario = job_to_replay();
  scenario.failures = {{Failure::Kind::restarts, 2'010, 1, 300}};
  std::vector<std::string> lines;
  SimulationListeners listeners;
  listeners.event = [&](actors::TimeNs now, size_t node, actors::RoleKind role, const actors::Event& event,
                        size_t from) { lines.push_back(event_line(now, node, role, event, from)); };
  listeners.failure = [&](actors::TimeNs now, const Failure& failure) {
    lines.push_back(failure_line(now, failure));
  };
  listeners.decided = [&](actors::TimeNs now, Rank rank, const local::Decided& decided) {
    lines.push_back(notified_line(now, rank, decided));
  };
  auto report = simulate(scenario, nvme(), listeners);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  using ::testing::Contains;
  EXPECT_GT(lines.size(), report->events);
  EXPECT_THAT(lines, Contains("2.010000000 failure: host 1 restarts at 2010 ms for 300 ms"));
  EXPECT_THAT(lines,
              Contains(HasSubstr("node0.coordinator: Received from node3: ShardsWritten step 1 (g1a1)")));
  EXPECT_THAT(lines, Contains(HasSubstr("node0.coordinator: PeerLost session 17")));
  EXPECT_THAT(lines, Contains(HasSubstr("rank 15 is notified of step 3: committed")));
  EXPECT_TRUE(std::is_sorted(lines.begin(), lines.end(),
                             [](const auto& a, const auto& b) { return std::stod(a) < std::stod(b); }));
}

}  // namespace
}  // namespace shoal::sim
