// What the roles cost a job, and the renewal simulation against whole lives by the roles: a small job that
// saves, is killed, starts again as a new generation, loads and goes on.
#include "sim/lifetime/measured_costs.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/basics/random.h"
#include "sim/lifetime/best_interval.h"
#include "sim/simulation.h"
#include "tests/sim/simulated.h"

namespace shoal::sim {
namespace {

using actors::TimeNs;
using ::testing::HasSubstr;

Scenario small_job(SaveMode mode = SaveMode::collective_free) {
  Scenario scenario;
  scenario.ranks = 16;
  scenario.ranks_per_host = 4;
  scenario.model = "gpt2";
  scenario.mode = mode;
  return scenario;
}

TEST(MeasuredCosts, AreThoseOfTheRoles) {
  const Profile profile = profile_named("lustre");
  const auto costs = measure_costs(small_job(), profile);
  ASSERT_TRUE(costs.ok()) << costs.status().to_string();
  EXPECT_EQ(costs->hosts, 4u);
  EXPECT_EQ(costs->bytes, 124'439'808u * 14);
  EXPECT_EQ(costs->saves.size(), 8u * 4);
  for (const MeasuredSave& save : costs->saves) {
    EXPECT_GT(save.blocked, 0);
    EXPECT_LT(save.blocked, save.written);
    EXPECT_LT(save.written, save.committed);
  }
  ASSERT_EQ(costs->loads.size(), 1u);
  ASSERT_EQ(costs->loads_after_save.size(), 3u);
  EXPECT_GT(costs->loads[0].found, 0);
  EXPECT_LT(costs->loads[0].found, costs->loads[0].loaded);
  // A host that dies in a save is given up after host_lost_ms.
  ASSERT_TRUE(costs->abort);
  EXPECT_GT(*costs->abort, 10 * kSecond);
  EXPECT_LT(*costs->abort, 30 * kSecond);
}

TEST(MeasuredCosts, DependOnTheSaver) {
  MeasuredCosts measured;
  measured.saves = {{3, 5, 20, 30}};
  measured.loads = {{1, 7}};
  measured.loads_after_save = {{8, 14}};
  const JobCosts shoal = costs_of(measured, Saver::shoal);
  EXPECT_EQ(shoal.saves[0].stall, 5);
  EXPECT_EQ(shoal.saves[0].commit, 30);
  EXPECT_EQ(shoal.loads[0], 7);
  EXPECT_THAT(shoal.loads_after_save, ::testing::ElementsAre(14));
  EXPECT_TRUE(shoal.outlives_trainers);
  const JobCosts synchronous = costs_of(measured, Saver::synchronous);
  EXPECT_EQ(synchronous.saves[0].stall, 30);
  EXPECT_EQ(synchronous.saves[0].commit, 30);
  const JobCosts background = costs_of(measured, Saver::background);
  EXPECT_EQ(background.saves[0].stall, 2);
  EXPECT_EQ(background.saves[0].commit, 30);
  EXPECT_FALSE(background.outlives_trainers);
  // Nobody decides what these leave, whether the trainers wait or not.
  for (const JobCosts* other : {&synchronous, &background}) {
    EXPECT_THAT(other->loads, ::testing::ElementsAre(7));
    EXPECT_THAT(other->loads_after_save, ::testing::IsEmpty());
  }
  // Of large jobs only loads after a kill in a save are measured.
  measured.loads.clear();
  EXPECT_THAT(costs_of(measured, Saver::synchronous).loads, ::testing::ElementsAre(14));
}

TEST(MeasuredCosts, OfASaveThatCannotBeCommittedAreAnError) {
  Profile profile = profile_named("pytorch-dcp");
  profile.items.deadline_s = 1;
  profile.items.plan_ns = 1'000'000'000;
  const auto costs = measure_costs(small_job(SaveMode::collective), profile);
  EXPECT_FALSE(costs.ok());
}

// --- whole lives ---

struct WholeLife {
  SimulationReport report;
  DrawnFailures failures;  // the same ones, for the renewal simulation
  TimeNs lasts = 0;
};

constexpr uint64_t kLifeIntervalMs = 20'000, kDownMs = 90'000;
constexpr size_t kLifeFailures = 12;

// The job is killed at random times, mostly minutes apart, and starts again kDownMs later.
WholeLife lived_by_roles(SaveMode mode, const Profile& profile, uint64_t seed) {
  Scenario scenario = small_job(mode);
  scenario.seed = seed;
  scenario.interval_ms = kLifeIntervalMs;
  scenario.saves = 60;
  Random random(mix64(seed));
  WholeLife life;
  uint64_t at_ms = 0;
  for (size_t i = 0; i < kLifeFailures; ++i) {
    at_ms += kDownMs + 60'000 + random.below(600'000);
    Failure failure;
    failure.kind = Failure::Kind::job_restarts;
    failure.at_ms = at_ms;
    failure.hosts = 0;
    failure.for_ms = kDownMs;
    failure.ranks = scenario.ranks;
    scenario.failures.push_back(failure);
    life.failures.ends.push_back(
        {static_cast<TimeNs>(at_ms) * actors::kMillisecond, FailureTime::Kind::host});
  }
  SimulationListeners listeners;
  listeners.has_oracles = false;
  life.report = simulate(scenario, profile, listeners).value();
  life.lasts = life.failures.ends.back().at;
  return life;
}

// What the roles' life lost: for each failure, the training since the begin of the last committed save, and
// all stalls. Saves of the reports come in the order of their begin.
struct Losses {
  TimeNs lost_steps = 0, stall = 0, load = 0;
  uint64_t unfinished = 0, saves = 0;
};
// When the run of this save was killed.
TimeNs killed_at(const WholeLife& life, const SaveReport& save) {
  for (const RestartReport& restart : life.report.restarts) {
    if (restart.generation == save.generation + 1) return restart.failed;
  }
  return life.lasts;
}
Losses losses_of(const WholeLife& life) {
  Losses losses;
  for (const SaveReport& save : life.report.saves) {
    const TimeNs killed = killed_at(life, save);
    if (save.began == 0 || save.began >= std::min(killed, life.lasts)) continue;
    ++losses.saves;
    losses.stall += save.blocked.greatest;
    losses.unfinished += save.notified_ranks == 0 || save.began + save.committed.least > killed;
  }
  for (const RestartReport& restart : life.report.restarts) {
    losses.lost_steps += restart.lost_steps;
    if (restart.began < life.lasts) losses.load += restart.loaded.greatest;
  }
  return losses;
}

struct LivesOf {
  const char* profile;
  SaveMode mode;
  int64_t client_bytes_per_s;  // 0: that of the profile
};
class WholeLives : public ::testing::TestWithParam<LivesOf> {};

TEST_P(WholeLives, AgreeWithTheRenewalSimulation) {
  Profile profile = profile_named(GetParam().profile);
  if (const int64_t rate = GetParam().client_bytes_per_s; rate != 0) {
    profile = with_number(std::move(profile), "storage.client_bytes_per_s", rate).value();
  }
  const SaveMode mode = GetParam().mode;
  const auto measured = measure_costs(small_job(mode), profile);
  ASSERT_TRUE(measured.ok()) << measured.status().to_string();
  JobPlan plan;
  plan.hosts = 4;
  plan.spares = 1000;
  plan.step = actors::kMillisecond;
  plan.restart = static_cast<TimeNs>(kDownMs) * actors::kMillisecond;
  const JobCosts costs = costs_of(*measured, Saver::shoal);
  Losses roles, renewal;
  TimeNs training_by_roles = 0, training = 0, lasted = 0;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const WholeLife life = lived_by_roles(mode, profile, seed);
    ASSERT_EQ(life.report.restarts.size(), kLifeFailures);
    const Losses each = losses_of(life);
    roles.lost_steps += each.lost_steps;
    roles.stall += each.stall;
    roles.load += each.load;
    roles.saves += each.saves;
    roles.unfinished += each.unfinished;
    const TimeNs down = static_cast<TimeNs>(kLifeFailures - 1) * plan.restart;
    training_by_roles += life.lasts - each.lost_steps - each.stall - each.load - down;
    plan.lasts = life.lasts + 1;  // the last failure is a part of both lives
    const Life renewed =
        live(plan, costs, static_cast<TimeNs>(kLifeIntervalMs) * actors::kMillisecond, life.failures, seed);
    renewal.lost_steps += renewed.parts.lost_steps;
    renewal.stall += renewed.parts.stall;
    renewal.load += renewed.parts.load;
    renewal.saves += renewed.saves;
    renewal.unfinished += renewed.unfinished;
    training += renewed.parts.training;
    lasted += life.lasts;
  }
  auto hours = [](TimeNs time) { return static_cast<double>(time) / static_cast<double>(kHour); };
  RecordProperty(
      "roles_and_renewal",
      fmt::format("training {:.3f} {:.3f} h, lost {:.4f} {:.4f} h, load {:.4f} {:.4f} h, saves {} {}, "
                  "not committed {} {}",
                  hours(training_by_roles), hours(training), hours(roles.lost_steps),
                  hours(renewal.lost_steps), hours(roles.load), hours(renewal.load), roles.saves,
                  renewal.saves, roles.unfinished, renewal.unfinished));
  EXPECT_NEAR(hours(training), hours(training_by_roles), 0.006 * hours(lasted));
  EXPECT_NEAR(hours(renewal.lost_steps), hours(roles.lost_steps), 0.1 * hours(roles.lost_steps));
  EXPECT_NEAR(hours(renewal.load), hours(roles.load), 0.25 * hours(roles.load) + 0.001);
  EXPECT_NEAR(hours(renewal.stall), hours(roles.stall), 0.1 * hours(roles.stall));
  EXPECT_NEAR(static_cast<double>(renewal.saves), static_cast<double>(roles.saves), 7.0);
  EXPECT_NEAR(static_cast<double>(renewal.unfinished), static_cast<double>(roles.unfinished), 3.0);
}

INSTANTIATE_TEST_SUITE_P(Jobs, WholeLives,
                         ::testing::Values(LivesOf{"lustre", SaveMode::collective_free, 0},
                                           LivesOf{"lustre", SaveMode::collective_free, 40'000'000},
                                           LivesOf{"object-store", SaveMode::rank_local, 0},
                                           LivesOf{"nvme", SaveMode::collective, 0}),
                         [](const auto& lives) {
                           std::string name = std::string(lives.param.profile) + "_" +
                                              (lives.param.client_bytes_per_s == 0 ? "" : "slow_") +
                                              std::string(mode_name(lives.param.mode));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace shoal::sim
