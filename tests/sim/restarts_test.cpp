// A job that a failure ends, and that starts again as another run.
#include "sim/restarts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actors/node/bootstrap.h"
#include "sim/replay.h"
#include "tests/sim/simulated.h"

namespace shoal::sim {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kind = Failure::Kind;
using State = NewerAttempt::State;

constexpr uint64_t kDetectMs = 2'000, kRestartMs = 7'000;

constexpr actors::TimeNs ms(uint64_t count) {
  return static_cast<actors::TimeNs>(count) * actors::kMillisecond;
}

// Saves at 10.00 s and some 20.05 s; the second is not committed before 20.5 s.
Scenario that_starts_again(std::vector<Failure> failures) {
  Scenario scenario = of_eight_hosts(std::move(failures));
  scenario.max_restarts = 3;
  scenario.detect_ms = kDetectMs;
  scenario.restart_after_ms = kRestartMs;
  return scenario;
}

const SaveReport& save_of(const SimulationReport& report, uint32_t generation, uint32_t step) {
  for (const SaveReport& save : report.saves) {
    if (save.generation == generation && save.step == step) return save;
  }
  ADD_FAILURE() << "no save " << step << " of generation " << generation;
  return report.saves.front();
}

TEST(ARestart, LoadsTheNewestCheckpointAndSavesAgain) {
  const SimulationReport report = simulated(that_starts_again({{Kind::dies, 15'000, 3}}));
  EXPECT_FALSE(report.violation) << report.violation->what;
  ASSERT_THAT(report.restarts, SizeIs(1));
  const RestartReport& restart = report.restarts.front();
  EXPECT_EQ(restart.failed, ms(15'000));
  EXPECT_EQ(restart.ended, ms(15'000 + kDetectMs));
  EXPECT_EQ(restart.began, ms(15'000 + kDetectMs + kRestartMs));
  EXPECT_EQ(restart.generation, 2u);
  EXPECT_EQ(restart.ranks, 64u);
  EXPECT_EQ(restart.checkpoint, (AttemptKey{1, 1, 1}));
  EXPECT_THAT(restart.newer, IsEmpty());
  EXPECT_GT(restart.claimed, restart.began);
  EXPECT_GT(restart.connected, restart.claimed);
  EXPECT_GT(restart.chosen, restart.connected);
  EXPECT_GE(restart.began + restart.found.least, restart.chosen);
  EXPECT_EQ(restart.resumed, restart.began + restart.loaded.greatest);
  // Both runs save twice, and only the run that was killed has saves that are not committed.
  EXPECT_TRUE(save_of(report, 1, 1).is_committed());
  EXPECT_TRUE(save_of(report, 2, 1).is_committed());
  EXPECT_TRUE(save_of(report, 2, 2).is_committed());
  const SaveReport& first = save_of(report, 2, 1);
  EXPECT_EQ(restart.saved, first.began + first.committed.greatest);
  EXPECT_EQ(first.began, restart.resumed + ms(10'000));
  EXPECT_FALSE(report.has_given_up);
}

TEST(ARestart, HasLostTheTrainingSinceTheSaveThatItLoads) {
  const SimulationReport report = simulated(that_starts_again({{Kind::dies, 15'000, 3}}));
  const SaveReport& loaded = save_of(report, 1, 1);
  EXPECT_EQ(report.restarts.at(0).lost_steps, ms(15'000) - loaded.began - loaded.blocked.greatest);
}

TEST(ARestart, WithoutACheckpointHasLostAllTraining) {
  const SimulationReport report = simulated(that_starts_again({{Kind::ends, 5'000}}));
  EXPECT_FALSE(report.violation) << report.violation->what;
  const RestartReport& restart = report.restarts.at(0);
  EXPECT_EQ(restart.checkpoint, std::nullopt);
  EXPECT_GE(restart.resumed, restart.began);
  EXPECT_EQ(restart.lost_steps, ms(5'000));
  EXPECT_TRUE(report.saves.back().is_committed());
}

// Its launcher kills the job before the roles give up the lost host.
TEST(ARestart, AbortsTheSaveThatTheFailureCutShort) {
  const SimulationReport report = simulated(that_starts_again({{Kind::dies, 20'100, 3}}));
  EXPECT_FALSE(report.violation) << report.violation->what;
  const RestartReport& restart = report.restarts.at(0);
  EXPECT_EQ(restart.checkpoint, (AttemptKey{1, 1, 1}));
  ASSERT_THAT(restart.newer, SizeIs(1));
  const NewerAttempt& newer = restart.newer.front();
  EXPECT_EQ(newer.key, (AttemptKey{1, 2, 1}));
  EXPECT_EQ(newer.state, State::aborted);
  EXPECT_TRUE(newer.was_undecided);
  EXPECT_THAT(newer.cause, HasSubstr("generation 1 ended before it was complete"));
}

TEST(ARestart, NamesTheAbortThatCameBeforeIt) {
  Scenario scenario = that_starts_again({{Kind::dies, 20'100, 3}});
  scenario.detect_ms = 60'000;  // the roles give up the lost host after 15 s
  const RestartReport restart = simulated(scenario).restarts.at(0);
  ASSERT_THAT(restart.newer, SizeIs(1));
  EXPECT_EQ(restart.newer.front().state, State::aborted);
  EXPECT_FALSE(restart.newer.front().was_undecided);
  EXPECT_THAT(restart.newer.front().cause, HasSubstr("host3"));
}

// The trainers of the other hosts wait for those that have ended.
TEST(AFailureThatEndsTheJob, LetsNoRankBeginAnotherSave) {
  Scenario scenario = that_starts_again({{Kind::vanishes, 15'000}});
  scenario.detect_ms = 60'000;
  const SimulationReport report = simulated(scenario);
  EXPECT_FALSE(report.violation) << report.violation->what;
  EXPECT_THAT(report.restarts, SizeIs(1));
  EXPECT_THAT(report.saves, SizeIs(3)) << "one of the first run, two of the second";
}

TEST(AFailureThatEndsNoTrainer, EndsNoJob) {
  const SimulationReport report =
      simulated(that_starts_again({{Kind::restarts, 15'000, 3, 300}, {Kind::stalls, 16'000, 2, 300}}));
  EXPECT_THAT(report.restarts, IsEmpty());
  EXPECT_TRUE(report.saves.back().is_committed());
}

// A hanging disk holds slabs for minutes after the last save is decided.
TEST(AFailureAfterTheLastSave, StartsNoJobAgain) {
  Scenario scenario = that_starts_again({});
  scenario.ranks = 16;
  scenario.ranks_per_host = 4;
  scenario.model = "tiny";
  scenario.mode = SaveMode::collective;
  scenario.interval_ms = 3'000;
  scenario.saves = 3;
  Failure hangs{Kind::disk_hangs, 3'631}, full{Kind::disk_full, 5'150, 2}, vanishes{Kind::vanishes, 26'939};
  hangs.for_ms = 601'015;
  full.for_ms = 14'405;
  vanishes.rank = 10;
  scenario.failures = {hangs, full, vanishes};
  const SimulationReport report = simulated(scenario);
  EXPECT_FALSE(report.violation) << report.violation->what;
  EXPECT_THAT(report.restarts, IsEmpty());
  EXPECT_FALSE(report.has_given_up);
}

TEST(ARestart, MayUseFewerHosts) {
  Scenario scenario = that_starts_again({{Kind::dies, 15'000, 3}});
  scenario.restart_ranks = 32;
  scenario.restart_mesh = "dp=16,tp=2";
  const SimulationReport report = simulated(scenario);
  EXPECT_FALSE(report.violation) << report.violation->what;
  const RestartReport& restart = report.restarts.at(0);
  EXPECT_EQ(restart.ranks, 32u);
  EXPECT_EQ(restart.nodes, 4u);
  EXPECT_EQ(to_string(restart.mesh), "dp=16,tp=2,pp=1");
  EXPECT_EQ(restart.checkpoint, (AttemptKey{1, 1, 1}));
  EXPECT_GE(restart.bytes_wanted, save_of(report, 1, 1).bytes_staged);
  EXPECT_EQ(save_of(report, 2, 2).notified_ranks, 32u);
}

TEST(AFailureDuringALoad, IsFollowedByAnotherRestart) {
  const Scenario once = that_starts_again({{Kind::dies, 15'000, 3}});
  const RestartReport undisturbed = simulated(once).restarts.at(0);
  const auto middle =
      static_cast<uint64_t>((undisturbed.began + undisturbed.loaded.greatest / 2) / actors::kMillisecond);
  const SimulationReport report =
      simulated(that_starts_again({{Kind::dies, 15'000, 3}, {Kind::dies, middle, 5}}));
  EXPECT_FALSE(report.violation) << report.violation->what;
  ASSERT_THAT(report.restarts, SizeIs(2));
  const RestartReport &cut = report.restarts[0], &last = report.restarts[1];
  EXPECT_LT(cut.resumed, 0);
  EXPECT_LT(cut.saved, 0);
  EXPECT_EQ(last.failed, ms(middle));
  EXPECT_EQ(last.generation, 3u);
  EXPECT_EQ(last.checkpoint, (AttemptKey{1, 1, 1}));
  EXPECT_EQ(last.lost_steps, 0) << "nobody has trained in between";
  EXPECT_EQ(cut.lost_steps, undisturbed.lost_steps);
  EXPECT_TRUE(report.saves.back().is_committed());
}

TEST(AFailureWhileNodesConnect, IsFollowedByAnotherRestart) {
  const uint64_t began = 15'000 + kDetectMs + kRestartMs;
  const SimulationReport report =
      simulated(that_starts_again({{Kind::dies, 15'000, 3}, {Kind::dies, began + 1, 5}}));
  EXPECT_FALSE(report.violation) << report.violation->what;
  ASSERT_THAT(report.restarts, SizeIs(2));
  const RestartReport &cut = report.restarts[0], &last = report.restarts[1];
  EXPECT_EQ(cut.began, ms(began));
  EXPECT_LT(cut.connected, 0);
  EXPECT_EQ(cut.found.greatest, 0);
  EXPECT_EQ(last.failed, ms(began + 1));
  EXPECT_EQ(last.checkpoint, (AttemptKey{1, 1, 1}));
  EXPECT_TRUE(report.saves.back().is_committed());
}

// Its port answers nothing, where that of a process that was killed is closed.
TEST(ARestart, WaitsForTheCoordinatorOfARunWhoseHostIsGone) {
  const auto claiming = [](uint64_t host) {
    const RestartReport restart = simulated(that_starts_again({{Kind::dies, 15'000, host}})).restarts.at(0);
    return restart.claimed - restart.began;
  };
  const actors::TimeNs probe = ms(actors::kProbeCoordinatorTimeoutMs);
  EXPECT_GE(claiming(0), probe);
  EXPECT_LT(claiming(3), probe);
}

TEST(ARestart, TakesLongerWhileTheStorageIsSlow) {
  Failure slow{Kind::disk_slow, 16'000};
  slow.hosts = 0;
  slow.for_ms = 60'000;
  slow.factor = 100;
  const RestartReport fast = simulated(that_starts_again({{Kind::dies, 15'000, 3}})).restarts.at(0);
  const RestartReport delayed = simulated(that_starts_again({{Kind::dies, 15'000, 3}, slow})).restarts.at(0);
  EXPECT_GT(delayed.connected - delayed.began, 2 * (fast.connected - fast.began));
  EXPECT_GT(delayed.resumed - delayed.connected, 2 * (fast.resumed - fast.connected));
  EXPECT_EQ(delayed.checkpoint, fast.checkpoint);
}

TEST(ARestart, ListsTheProofsOfAllNodesThatStartWithIt) {
  const auto listed = [](uint32_t ranks) {
    Scenario scenario = that_starts_again({{Kind::dies, 15'000, 3}});
    scenario.ranks = ranks;
    scenario.model = "tiny";
    return simulated(scenario).restarts.at(0).costs.storage.listed;
  };
  // Each of so many nodes lists a file of each. The rest grows with the number of nodes.
  EXPECT_GT(listed(512) - 2 * listed(256), 64u * 64 - 2 * 32 * 32 - 64);
}

TEST(AJob, EndsForGoodWhenNoRestartIsLeft) {
  Scenario scenario = that_starts_again({{Kind::dies, 15'000, 3}, {Kind::ends, 30'000}});
  scenario.max_restarts = 1;
  const SimulationReport report = simulated(scenario);
  EXPECT_FALSE(report.violation) << report.violation->what;
  EXPECT_THAT(report.restarts, SizeIs(1));
  EXPECT_TRUE(report.has_given_up);
  EXPECT_EQ(report.saves.back().generation, 1u) << "the second run has begun no save";
}

class RestartsInMode : public ::testing::TestWithParam<SaveMode> {};

// The audit reads the root; loads are compared with what was staged.
TEST_P(RestartsInMode, BringBackTheBytesThatWereSaved) {
  Scenario scenario;
  scenario.ranks = 8;
  scenario.ranks_per_host = 2;
  scenario.model = "tiny";
  scenario.profile = "nvme";
  scenario.mode = GetParam();
  scenario.payload = Payload::full;
  scenario.saves = 3;
  scenario.interval_ms = 4'000;
  scenario.max_restarts = 5;
  scenario.detect_ms = 500;
  scenario.restart_after_ms = 1'500;
  scenario.restart_ranks = 6;
  scenario.failures = {{Kind::dies, 8'001, 1}, {Kind::ends, 10'010}, {Kind::dies, 21'000, 0, 0, 0}};
  const SimulationReport report = simulated(scenario);
  EXPECT_FALSE(report.violation) << report.violation->oracle << ": " << report.violation->what;
  ASSERT_THAT(report.restarts, SizeIs(3));
  EXPECT_TRUE(report.restarts.back().checkpoint.has_value());
  EXPECT_THAT(report.restarts, Each(Field(&RestartReport::ranks, 6u)));
  EXPECT_TRUE(report.saves.back().is_committed());
}
INSTANTIATE_TEST_SUITE_P(Modes, RestartsInMode, ::testing::ValuesIn(kModes), [](const auto& mode) {
  std::string name(mode_name(mode.param));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// Runs that start again last longer than the saves of one run.
TEST(ALife, HasFailuresUntilItsLastRestart) {
  Scenario scenario = that_starts_again({});
  scenario.failure_draws = "poisson:mtbf_node_hours=1";
  const auto last_of = [](const Scenario& drawn) {
    const auto failures = with_all_failures(drawn)->failures;
    return failures.empty() ? 0 : failures.back().at_ms;
  };
  scenario.max_restarts = 100;
  EXPECT_GT(last_of(scenario), 1'000'000u);
  scenario.max_restarts = 0;
  EXPECT_LT(last_of(scenario), 25'000u);
}

TEST(ALife, IsTheSameAgainFromItsFile) {
  const Scenario scenario = that_starts_again({{Kind::dies, 15'000, 3}, {Kind::dies, 24'200, 5}});
  const Profile nvme = profile_named("nvme");
  const SimulationReport report = simulated(scenario);
  EXPECT_THAT(report.restarts, SizeIs(2));
  const auto replay = parse_replay(replay_text(replay_of(report, nvme, "0.1.0")), "life.toml");
  ASSERT_TRUE(replay.ok()) << replay.status().to_string();
  EXPECT_EQ(replay->scenario, scenario);
  EXPECT_EQ(difference(*replay, *simulate(replay->scenario, replay->profile)), "");
  Scenario other = scenario;
  other.restart_after_ms += 1;
  EXPECT_THAT(difference(*replay, simulated(other)), HasSubstr("now it is "));
}

TEST(RestartsOfAScenario, AreRejectedByReason) {
  const auto refusal = [](const std::function<void(Scenario&)>& change) {
    Scenario scenario = that_starts_again({});
    change(scenario);
    return validate_scenario(scenario).message();
  };
  EXPECT_EQ(refusal([](Scenario&) {}), "");
  EXPECT_THAT(refusal([](Scenario& s) { s.restart_mesh = "dp=7"; }),
              HasSubstr("the job that starts again: mesh dp=7,tp=1,pp=1 has 7 ranks, not 64"));
  EXPECT_THAT(refusal([](Scenario& s) {
                s.max_restarts = 0;
                s.restart_ranks = 8;
              }),
              HasSubstr("restart_ranks is set, but no failure starts the job again: set max_restarts"));
  EXPECT_THAT(refusal([](Scenario& s) { s.max_restarts = 0; }), HasSubstr("detect_ms is set"));
  EXPECT_THAT(refusal([](Scenario& s) {
                Failure restart{Kind::job_restarts, 15'000};
                restart.for_ms = 10;
                restart.ranks = 64;
                s.failures = {restart};
              }),
              HasSubstr("use one of them"));
  EXPECT_THAT(refusal([](Scenario& s) { s.max_restarts = kMaxSimulatedRestarts + 1; }),
              HasSubstr("max_restarts = 1001"));
  EXPECT_THAT(
      parse_scenario("ranks = 8\nmax_restarts = 1\nrestart_mesh = \"dp=3\"\n", "s.toml").status().message(),
      HasSubstr("s.toml:3: the job that starts again: mesh"));
}

}  // namespace
}  // namespace shoal::sim
