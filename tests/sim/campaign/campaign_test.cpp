// What shoal fuzz is made of: the jobs that seeds draw, failures that are aimed at events, and violations
// that are cut down.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>

#include "sim/campaign/aimed_failures.h"
#include "sim/campaign/shrink.h"
#include "sim/campaign/swarm.h"
#include "sim/simulation.h"

namespace shoal::sim {
namespace {

const Profile& profile_of(const std::string& name) {
  static std::map<std::string, Profile> profiles;
  if (!profiles.contains(name)) {
    profiles.emplace(name, *find_profile(name, {std::string(SHOAL_SOURCE_FOLDER) + "/sim/profiles"}));
  }
  return profiles.at(name);
}

Scenario tiny_job() {
  Scenario job;
  job.ranks = 8;
  job.ranks_per_host = 2;
  job.model = "tiny";
  job.profile = "nvme";
  job.saves = 3;
  job.interval_ms = 50;
  return job;
}

TEST(Swarm, DrawsTheSameJobFromTheSameSeed) {
  AimCounts first_counts, second_counts;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    auto first = draw_case(seed, {}, profile_of, &first_counts);
    auto second = draw_case(seed, {}, profile_of, &second_counts);
    ASSERT_TRUE(first.ok()) << first.status().to_string();
    EXPECT_EQ(*first, *second);
  }
  EXPECT_EQ(first_counts, second_counts);
}

TEST(Swarm, DrawsEveryModeProfileAndKindOfFailure) {
  std::set<SaveMode> modes;
  std::set<std::string> profiles;
  std::set<Failure::Kind> kinds;
  size_t without_failures = 0, with_relays = 0, with_loads = 0;
  AimCounts counts;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    const auto drawn = draw_case(seed, {}, profile_of, &counts);
    ASSERT_TRUE(drawn.ok()) << "seed " << seed << ": " << drawn.status().to_string();
    const Scenario& job = *drawn;
    modes.insert(job.mode);
    profiles.insert(job.profile);
    for (const Failure& failure : job.failures) kinds.insert(failure.kind);
    without_failures += job.failures.empty();
    with_relays += job.hosts() > job.max_direct_nodes + 1;
    with_loads += job.loads;
  }
  EXPECT_EQ(modes.size(), 3u);
  EXPECT_EQ(profiles.size(), std::size(kSwarmProfiles));
  EXPECT_EQ(kinds.size(), Failure::kKinds);
  EXPECT_GT(without_failures, 0u);
  EXPECT_GT(with_relays, 0u);
  EXPECT_GT(with_loads, 0u);
  SwarmLimits limits;
  limits.mode = SaveMode::rank_local;
  limits.most_failures = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto drawn = draw_case(seed, limits, profile_of, &counts);
    EXPECT_EQ(drawn->mode, SaveMode::rank_local);
    EXPECT_TRUE(drawn->failures.empty());
  }
}

TEST(Swarm, DrawsTheSameJobWhetherTheModeIsGivenOrDrawn) {
  AimCounts counts;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto drawn = draw_case(seed, {}, profile_of, &counts);
    SwarmLimits limits;
    limits.mode = drawn->mode;
    EXPECT_EQ(*draw_case(seed, limits, profile_of, &counts), *drawn);
  }
}

TEST(Swarm, ContinuesJobsThatTookRarePaths) {
  const RareSeeds rare = {{{SaveMode::collective, "rare"}, {7}}, {{SaveMode::rank_local, "rare"}, {8}}};
  SwarmLimits limits;
  limits.mode = SaveMode::collective;
  AimCounts counts;
  const auto base = draw_case(7, limits, profile_of, &counts);
  limits.rare = &rare;
  size_t continued = 0;
  for (uint64_t seed = 100; seed < 140; ++seed) {
    const auto drawn = draw_case(seed, limits, profile_of, &counts);
    ASSERT_TRUE(drawn.ok()) << drawn.status().to_string();
    if (drawn->seed == seed) continue;
    ++continued;
    Scenario without = *drawn;
    EXPECT_GT(without.failures.size(), base->failures.size());
    EXPECT_LE(without.failures.size(), base->failures.size() + 2);
    for (const Failure& failure : base->failures) {
      EXPECT_NE(std::ranges::find(without.failures, failure), without.failures.end());
    }
    without.failures = base->failures;
    EXPECT_EQ(without, *base);
  }
  EXPECT_GT(continued, 5u);
  EXPECT_LT(continued, 25u);
}

TEST(Swarm, HasRanksThatWriteSeveralFiles) {
  size_t further_files = 0;
  SimulationListeners listeners;
  listeners.operation = [&](actors::TimeNs, size_t, const actors::Operation& operation) {
    const auto* write = std::get_if<actors::operation::WriteShard>(&operation);
    further_files += write != nullptr && write->file != 0;
  };
  SwarmLimits limits;
  limits.most_failures = 0;
  AimCounts counts;
  for (uint64_t seed = 1; seed <= 100 && further_files <= 10; ++seed) {
    const auto drawn = draw_case(seed, limits, profile_of, &counts);
    ASSERT_TRUE(drawn.ok()) << drawn.status().to_string();
    ASSERT_TRUE(simulate(*drawn, profile_of(drawn->profile), listeners).ok());
  }
  EXPECT_GT(further_files, 10u);
}

TEST(Swarm, HasJobsThatStageInPartsAndJobsWithOtherNumbersOfSlabs) {
  constexpr uint64_t kSeeds = 400;
  size_t in_parts = 0, of_several_parts = 0, other_slabs = 0;
  SwarmLimits limits;
  limits.most_failures = 0;
  AimCounts counts;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const auto drawn = draw_case(seed, limits, profile_of, &counts);
    ASSERT_TRUE(drawn.ok()) << drawn.status().to_string();
    other_slabs += drawn->max_in_flight != kDefaultSavesInFlight;
    if (drawn->slab_bytes == 0) continue;
    uint64_t most_bytes = 0;
    SimulationListeners listeners;
    listeners.operation = [&](actors::TimeNs, size_t, const actors::Operation& operation) {
      const auto* write = std::get_if<actors::operation::WriteShard>(&operation);
      if (write == nullptr || !write->in_parts) return;
      uint64_t bytes = 0;
      for (const actors::SlabRange& range : write->data.vector()) bytes += range.bytes;
      most_bytes = std::max(most_bytes, bytes);
    };
    const auto report = simulate(*drawn, profile_of(drawn->profile), listeners);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_FALSE(report->violation.has_value()) << report->violation->what;
    in_parts += most_bytes != 0;
    of_several_parts += most_bytes > drawn->parts_slab_bytes() / 2;
  }
  EXPECT_GT(in_parts, kSeeds / 10);
  EXPECT_LT(in_parts, kSeeds / 5);
  EXPECT_GT(of_several_parts, 0u);
  EXPECT_GT(other_slabs, kSeeds / 4);
  EXPECT_LT(other_slabs, kSeeds / 2);
}

TEST(AimedFailures, FitTheEventsThatTheyAreAimedAt) {
  AimCounts counts;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    ASSERT_TRUE(aim_failures(tiny_job(), profile_of("nvme"), {Aim{}}, seed, &counts).ok());
  }
  uint64_t disks = 0, operations = 0;
  for (const auto& [cell, times] : counts) {
    if (!cell.first.starts_with("node: ")) continue;
    operations += times;
    disks += cell.second >= Failure::Kind::disk_slow && cell.second <= Failure::Kind::disk_loses ? times : 0;
  }
  EXPECT_GT(2 * disks, operations) << "half of them, and a fifth of the others";
  EXPECT_LT(disks, operations);
}

TEST(AimedFailures, HitRareEventsAsOftenAsCommonOnes) {
  AimCounts counts;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    auto aimed = aim_failures(tiny_job(), profile_of("nvme"), {Aim{}, Aim{}}, seed, &counts);
    ASSERT_TRUE(aimed.ok()) << aimed.status().to_string();
    EXPECT_EQ(aimed->failures.size(), 2u);
  }
  std::map<std::string, uint64_t> by_moment;
  for (const auto& [cell, times] : counts) by_moment[cell.first] += times;
  // The roster is published once in a run, and a report is received from each node in each save.
  EXPECT_GT(by_moment["node: PublishRoster"], 5u);
  EXPECT_GT(by_moment["coordinator: Received ShardsWritten"], 5u);
  EXPECT_LT(by_moment["coordinator: Received ShardsWritten"], 50u);
  EXPECT_GT(by_moment["node: PublishDecision"], 5u);
}

// The moment is in the run before the failure, so the run with the failure reaches it too.
TEST(AimedFailures, BeginAtTheEventThatTheyAreAimedAt) {
  size_t at_an_event = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    AimCounts counts;
    auto aimed = aim_failures(tiny_job(), profile_of("nvme"), {Aim{}}, seed, &counts);
    ASSERT_TRUE(aimed.ok()) << aimed.status().to_string();
    const Failure& failure = aimed->failures.at(0);
    const actors::TimeNs at = static_cast<actors::TimeNs>(failure.at_ms) * actors::kMillisecond +
                              static_cast<actors::TimeNs>(failure.at_ns);
    actors::TimeNs nearest = std::numeric_limits<actors::TimeNs>::max();
    SimulationListeners listeners;
    const auto see = [&](actors::TimeNs now) { nearest = std::min(nearest, std::abs(now - at)); };
    listeners.event = [&](actors::TimeNs now, size_t, actors::RoleKind, const actors::Event&, size_t) {
      see(now);
    };
    listeners.operation = [&](actors::TimeNs now, size_t, const actors::Operation&) { see(now); };
    ASSERT_TRUE(simulate(*aimed, profile_of("nvme"), listeners).ok());
    at_an_event += nearest <= 1;
  }
  EXPECT_GE(at_an_event, 10u) << "a third of the offsets is a nanosecond";
}

TEST(AimedFailures, StopWhereNothingHappensAnyMore) {
  Scenario dead = tiny_job();
  for (uint64_t host = 0; host < dead.hosts(); ++host) {
    Failure failure{Failure::Kind::dies, 0, host};
    dead.failures.push_back(failure);
  }
  AimCounts counts;
  auto aimed = aim_failures(dead, profile_of("nvme"), std::vector<Aim>(5), 1, &counts);
  ASSERT_TRUE(aimed.ok()) << aimed.status().to_string();
  EXPECT_LE(aimed->failures.size(), dead.failures.size() + 5);
}

// The job is killed in its second save and starts again twice, on more and on fewer ranks.
TEST(AJobThatStartsAgain, LoadsTheNewestCheckpointBitForBitAndGoesOnSaving) {
  for (const SaveMode mode : {SaveMode::collective_free, SaveMode::rank_local, SaveMode::collective}) {
    Scenario job = tiny_job();
    job.mode = mode;
    job.payload = Payload::full;
    Failure restart{Failure::Kind::job_restarts, 101, 0, 40};
    restart.hosts = 0;
    restart.ranks = 12;
    job.failures.push_back(restart);
    restart.at_ms = 400'000;
    restart.ranks = 3;
    job.failures.push_back(restart);
    auto report = simulate(job, profile_of("nvme"));
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_FALSE(report->violation) << report->violation->what;
    ASSERT_EQ(report->saves.size(), 9u);
    EXPECT_TRUE(report->saves[0].is_committed()) << report->saves[0].cause;
    for (size_t save = 3; save < 9; ++save) {
      EXPECT_TRUE(report->saves[save].is_committed()) << save << ": " << report->saves[save].cause;
    }
    EXPECT_GT(report->bytes_stored, 0u);
  }
}

TEST(AJobThatStartsAgain, TakesTheRootFromARunThatGoesOn) {
  Scenario job = tiny_job();
  job.payload = Payload::full;
  job.saves = 20;
  Failure restart{Failure::Kind::job_restarts, 101, 0, 40};
  restart.hosts = 1;  // the other hosts go on
  restart.ranks = 8;
  job.failures.push_back(restart);
  auto report = simulate(job, profile_of("nvme"));
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_FALSE(report->violation) << report->violation->what;
  EXPECT_TRUE(report->saves.back().is_committed());
}

// A run that violates an oracle if host 2 dies and there are two saves.
SimulationReport fake_run(const Scenario& scenario) {
  SimulationReport report;
  report.scenario = scenario;
  const bool is_there = std::any_of(
      scenario.failures.begin(), scenario.failures.end(),
      [](const Failure& failure) { return failure.kind == Failure::Kind::dies && failure.host == 2; });
  if (is_there && scenario.saves >= 2) report.violation = Violation{"one-decision", 0, "two"};
  if (!is_there && scenario.saves >= 2) report.violation = Violation{"bounds", 0, "another one"};
  return report;
}

TEST(Shrink, KeepsOnlyWhatTheViolationNeeds) {
  Scenario job = tiny_job();
  job.saves = 5;
  job.loads = 1;
  for (uint64_t host : {0, 1, 2, 3}) {
    job.failures.push_back({Failure::Kind::dies, 20, host});
    job.failures.push_back({Failure::Kind::stalls, 30, host});
  }
  const SimulationReport least = shrink(fake_run(job), fake_run);
  ASSERT_TRUE(least.violation.has_value());
  EXPECT_EQ(least.violation->oracle, "one-decision");
  ASSERT_EQ(least.scenario.failures.size(), 1u);
  EXPECT_EQ(least.scenario.failures[0].host, 2u);
  EXPECT_EQ(least.scenario.saves, 2u);
  EXPECT_EQ(least.scenario.loads, 0u);
}

}  // namespace
}  // namespace shoal::sim
