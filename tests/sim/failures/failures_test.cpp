// Failures as data, and the reaction of the production roles to them on virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/basics/toml_tree.h"
#include "sim/failures/failure_draws.h"
#include "sim/simulation.h"
#include "tests/sim/simulated.h"

namespace shoal::sim {
namespace {

using ::testing::HasSubstr;
using Kind = Failure::Kind;

Result<Failure> parsed(const std::string& text) {
  auto file = parse_toml(text, "f.toml");
  EXPECT_TRUE(file.ok()) << file.status().to_string();
  return parse_failure(*file->tables("failure").value().front());
}

// --- as data ---

// Of every kind, with all keys that it may have: those that it refuses are left out.
std::string full_text(const std::string& kind) {
  std::vector<std::string> lines = {"host = 3",   "hosts = 2",         "to_host = 4", "to_hosts = 5",
                                    "rank = 7",   "for_ms = 90",       "by_ms = 20",  "permille = 10",
                                    "factor = 6", "back_after_ms = 8", "ranks = 9",   "behind = 3",
                                    "keep = 2",   "part = 1"};
  for (;;) {
    std::string text = "[[failure]]\nat_ms = 61_000\nat_ns = 2_001\nkind = \"" + kind + "\"\n";
    for (const std::string& line : lines) text += line + "\n";
    auto failure = parsed(text);
    if (failure.ok()) return text;
    std::erase_if(lines, [&](const std::string& line) {
      const std::string key = "'" + line.substr(0, line.find(' ')) + "' is not known here";
      return failure.status().message().find(key) != std::string::npos;
    });
  }
}

TEST(Failures, AreReadBackAsTheyArePrinted) {
  for (size_t kind = 0; kind < Failure::kKinds; ++kind) {
    const std::string name(failure_kind_name(static_cast<Kind>(kind)));
    const Failure received = *parsed(full_text(name));
    EXPECT_EQ(received.kind, static_cast<Kind>(kind));
    auto again = parsed(failure_toml(received));
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(*again, received) << failure_toml(received);
    Failure of_one_host = received;
    of_one_host.hosts = 1;
    EXPECT_THAT(to_string(of_one_host), HasSubstr(name + " at 61000.002001 ms"));
  }
}

TEST(Failures, MayNameAnyRankThatCanBeSimulated) {
  const auto last = parsed(
      "[[failure]]\nat_ms = 3\nkind = \"ends\"\nrank = " + std::to_string(kMaxSimulatedRanks - 1) + "\n");
  EXPECT_TRUE(last.ok()) << last.status().to_string();
}

TEST(Failures, AreRefusedByFileLineAndReason) {
  auto refusal = [](const std::string& text) { return parsed("[[failure]]\n" + text).status().message(); };
  EXPECT_THAT(refusal("at_ms = 3\nhost = 1\nkind = \"melts\"\n"),
              HasSubstr("f.toml:1: kind = 'melts' is not a kind of failure; known kinds are dies, stalls,"));
  EXPECT_THAT(refusal("at_ms = 3\nkind = \"dies\"\n"),
              HasSubstr("f.toml:1: a failure of kind 'dies' needs the key host"));
  EXPECT_THAT(refusal("kind = \"dies\"\nhost = 1\n"), HasSubstr("a failure needs the key at_ms"));
  EXPECT_THAT(refusal("at_ms = 3\nkind = \"dies\"\nhost = 1\nfor_ms = 3\n"),
              HasSubstr("f.toml:5: 'for_ms' is not known here"));
  EXPECT_THAT(refusal("at_ms = 3\nkind = \"loses\"\nhost = 1\nfor_ms = 3\npermille = 1001\n"),
              HasSubstr("f.toml:6: permille = 1001: it must lie between 1 and 1000"));
  EXPECT_THAT(refusal("at_ms = -3\nkind = \"dies\"\nhost = 1\n"), HasSubstr("f.toml:2: at_ms = -3"));
  EXPECT_THAT(check_failure({Kind::dies, 5, 3, 0, 8}, 8, 64).message(),
              HasSubstr("hosts 3 to 10 die at 5 ms: the job has only 8 hosts"));
  Failure rank{Kind::ends, 5};
  rank.rank = 64;
  EXPECT_THAT(check_failure(rank, 8, 64).message(),
              HasSubstr("rank 64 ends at 5 ms: the job has only 64 ranks"));
}

TEST(DrawnFailures, NameTheKindsWhereOneIsUnknown) {
  EXPECT_THAT(parse_failure_rules("mixed:count=1,kinds=fire").status().message(),
              HasSubstr("kinds: 'fire' is not a kind of failure; known kinds are dies, stalls,"));
}

// --- what comes of them ---

actors::TimeNs seconds(int64_t count) {
  return count * 1000 * actors::kMillisecond;
}

TEST(ANode, ThatBeginsAgainIsOfferedWhatItsTrainersHold) {
  for (uint64_t at_ms : {20'060, 20'150, 20'400}) {
    const SimulationReport report = simulated(of_eight_hosts({{Kind::restarts, at_ms, 3, 300}}));
    EXPECT_EQ(report.saves[1].aborted_ranks, 0u) << report.saves[1].cause;
    EXPECT_LT(report.saves[1].committed.greatest, seconds(5)) << at_ms;
  }
}

TEST(ANode, ThatIsToldToStopIsFollowedAndLosesNothing) {
  for (SaveMode mode : {SaveMode::collective_free, SaveMode::rank_local, SaveMode::collective}) {
    for (uint64_t host : {0, 3}) {
      const SimulationReport report = simulated(of_eight_hosts({{Kind::stops, 20'150, host, 2'000}}, mode));
      EXPECT_FALSE(report.violation.has_value()) << report.violation->what;
      for (const SaveReport& save : report.saves) EXPECT_EQ(save.aborted_ranks, 0u) << save.cause;
    }
  }
}

// Regression: ranks that found the next node of their host one after the other were informed of a commit of a
// save that had been aborted meanwhile.
TEST(ANode, ThatBeginsAgainTellsRanksThatComeLateThatTheirSaveIsAborted) {
  for (SaveMode mode : {SaveMode::collective_free, SaveMode::rank_local, SaveMode::collective}) {
    Failure ends{Kind::ends, 20'060};
    ends.rank = 63;
    const SimulationReport report =
        simulated(of_eight_hosts({{Kind::restarts, 20'070, 3, 5'000}, ends}, mode));
    EXPECT_FALSE(report.violation.has_value()) << report.violation->what;
    EXPECT_EQ(report.saves[1].aborted_ranks, 63u) << report.saves[1].cause;
  }
}

TEST(ACoordinator, ThatBeginsAgainIsFoundAndCommits) {
  for (uint64_t at_ms : {20'060, 20'150, 20'400, 20'600}) {
    const SimulationReport report = simulated(of_eight_hosts({{Kind::restarts, at_ms, 0, 1000}}));
    EXPECT_EQ(report.saves[1].aborted_ranks, 0u) << report.saves[1].cause;
    EXPECT_LT(report.saves[1].committed.greatest, seconds(15)) << at_ms;
  }
}

TEST(ACoordinator, TakesThePlaceOfOneThatStandsStillAndWakesUp) {
  const SimulationReport report =
      simulated(of_eight_hosts({{Kind::stalls, 20'100, 0, 12'000}, {Kind::coordinates, 23'000, 1}}));
  EXPECT_GT(report.saves[1].committed.least, seconds(2));  // what the old one would have taken
  EXPECT_EQ(report.saves[1].aborted_ranks, 0u) << report.saves[1].cause;
  EXPECT_THAT(report.warnings,
              ::testing::Contains(HasSubstr("node0: this coordinator is superseded by epoch 2 at node1")));
}

TEST(ANode, ThatStandsStillForLongReturnsAndIsHeard) {
  const SimulationReport report = simulated(of_eight_hosts({{Kind::stalls, 20'100, 3, 12'000}}));
  EXPECT_EQ(report.saves[1].aborted_ranks, 0u) << report.saves[1].cause;
  EXPECT_GT(report.saves[1].committed.least, seconds(11));
}

TEST(ANode, ThatStandsStillForLongerIsLostAndNamedByItsHost) {
  const SaveReport save = simulated(of_eight_hosts({{Kind::stalls, 20'100, 3, 40'000}})).saves[1];
  EXPECT_EQ(save.aborted_ranks, 64u);
  EXPECT_LT(save.committed.least, seconds(20));
  EXPECT_THAT(save.cause, HasSubstr("host host3 (ranks 24, 25,"));
}

TEST(AHost, ThatDiesAndComesBackWithoutTrainersLeavesTheOthersToTheDeadline) {
  Failure failure{Kind::dies, 20'150, 0};
  failure.back_after_ms = 10'000;
  const SaveReport save = simulated(of_eight_hosts({failure})).saves[1];
  EXPECT_EQ(save.aborted_ranks, 56u);
  EXPECT_THAT(save.cause, HasSubstr("ranks 0, 1, 2, 3, 4, 5, 6, 7"));
  EXPECT_LT(save.committed.greatest, seconds(180)) << "the node's deadline, though a coordinator came back";
}

TEST(ARank, ThatEndsBeforeItStagedEndsTheSaveAtOnceWhereItsLauncherSaysSo) {
  Failure failure{Kind::ends, 15'000};
  failure.rank = 13;
  const SaveReport notified = simulated(of_eight_hosts({failure})).saves[1];
  EXPECT_EQ(notified.aborted_ranks, 63u);
  EXPECT_THAT(notified.cause,
              HasSubstr("rank 13 (host host1): its trainer ended before it staged this save: signal 9"));
  EXPECT_LT(notified.committed.greatest, seconds(5));
  failure.kind = Kind::vanishes;
  const SaveReport silent = simulated(of_eight_hosts({failure})).saves[1];
  EXPECT_EQ(silent.aborted_ranks, 63u);
  EXPECT_THAT(
      silent.cause,
      HasSubstr("rank 13 (host host1): its connection to the node ended"));  // others of its host wait
}

// Of each trainer of hosts 1 and 2, while the second save is written.
std::vector<Failure> of_two_hosts(Kind kind) {
  std::vector<Failure> failures;
  for (uint64_t rank = 8; rank < 24; ++rank) {
    failures.push_back({kind, 20'300});
    failures.back().rank = rank;
  }
  return failures;
}

TEST(ATrainer, ThatReconnectsWhileItsSaveIsWrittenLosesNothing) {
  for (const SaveMode mode : kModes) {
    const Scenario scenario = of_eight_hosts(of_two_hosts(Kind::reconnects), mode);
    PathCounts paths;
    SimulationListeners listeners;
    listeners.paths = &paths;
    const SimulationReport report = simulated(scenario, listeners);
    for (const SaveReport& save : report.saves) EXPECT_TRUE(save.is_committed()) << save.cause;
    EXPECT_GT(paths.taken().at("rare: shard writer: a rank offers again what this node has"), 0u);
  }
}

// Regression: the saves that other ranks had staged meanwhile were aborted.
TEST(ATrainer, ThatOpensItsCheckpointerAnewAbortsNoSave) {
  for (const SaveMode mode : kModes) {
    std::vector<Failure> failures = of_two_hosts(Kind::reopens);
    // The third save begins before they are back.
    for (Failure& failure : failures) failure.for_ms = 30'000 - 1'000 * failure.rank;
    Scenario scenario = of_eight_hosts(failures, mode);
    scenario.saves = 4;
    scenario.timeouts["host_lost_ms"] = 40'000;
    for (const SaveReport& save : simulated(scenario).saves) {
      EXPECT_TRUE(save.is_committed()) << save.cause;
    }
    scenario.timeouts["host_lost_ms"] = 2'000;
    const SaveReport third = simulated(scenario).saves[2];
    EXPECT_THAT(third.cause, HasSubstr("its trainer closed its Checkpointer before it staged this save"));
  }
}

TEST(ATrainer, ThatIsAwayForLongWhileItsSaveIsWrittenLosesNothing) {
  std::vector<Failure> failures = of_two_hosts(Kind::reconnects);
  for (Failure& failure : failures) failure.for_ms = 6'000;
  const SimulationReport report = simulated(of_eight_hosts(failures));
  EXPECT_TRUE(report.saves[1].is_committed()) << report.saves[1].cause;
  EXPECT_GT(report.saves[1].committed.greatest, seconds(5));
}

// A process may come to a host with the rank of another one: a program that somebody tries with the job's
// variables. It saves nothing. The node that it was attached to waited for it, and told the coordinator that
// the rank had ended: all further saves were aborted.
TEST(ARank, ThatAlsoAttachesOnAnotherHostEndsNoSaveWhenItLeaves) {
  for (const SaveMode mode : kModes) {
    for (const uint64_t lasts_ms : {0u, 2'000u, 60'000u}) {
      Failure twins{Kind::twins, 15'000};
      twins.rank = 13;
      twins.host = 5;
      twins.for_ms = lasts_ms;
      Scenario scenario = of_eight_hosts({twins}, mode);
      scenario.node_start = NodeStart::trainers;
      scenario.saves = 6;
      const SimulationReport report = simulated(scenario);
      EXPECT_FALSE(report.violation.has_value()) << report.violation->what;
      for (const SaveReport& save : report.saves) EXPECT_TRUE(save.is_committed()) << save.cause;
    }
  }
}

// The rank itself then ends on its own host: that counts.
TEST(ARank, ThatEndsOnItsOwnHostIsMissedAlsoIfAnotherProcessOfItCameAndLeft) {
  for (const SaveMode mode : kModes) {
    Failure twins{Kind::twins, 15'000};
    twins.rank = 13;
    twins.host = 5;
    twins.for_ms = 2'000;
    Failure vanishes{Kind::vanishes, 35'000};
    vanishes.rank = 13;
    Scenario scenario = of_eight_hosts({twins, vanishes}, mode);
    scenario.node_start = NodeStart::trainers;
    scenario.saves = 4;
    const SimulationReport report = simulated(scenario);
    EXPECT_FALSE(report.violation.has_value()) << report.violation->what;
    EXPECT_TRUE(report.saves[1].is_committed()) << report.saves[1].cause;
    EXPECT_THAT(report.saves.back().cause, HasSubstr("rank 13"));
    EXPECT_LT(report.saves.back().committed.greatest, seconds(20));
  }
}

// Regression: the bytes of a shard that the disk had lost came back when the whole job lost power, so that
// the two simulated roots disagreed.
TEST(ADisk, ThatLosesShardsHasNoneOfThemAfterALossOfPower) {
  for (uint64_t at_ms = 1'010; at_ms <= 1'150; at_ms += 10) {
    Failure loses{Kind::disk_loses, 0};
    loses.for_ms = 3'000;
    loses.hosts = 0;
    Failure restarts{Kind::job_restarts, at_ms};
    restarts.hosts = 0;
    restarts.for_ms = 100;
    restarts.ranks = 8;
    Scenario scenario = of_eight_hosts({loses, restarts}, SaveMode::rank_local);
    scenario.ranks = 8;
    scenario.ranks_per_host = 2;
    scenario.model = "tiny";
    scenario.payload = Payload::full;
    scenario.profile = "lustre";
    scenario.interval_ms = 1'000;
    const auto report = simulate(scenario, profile_named(scenario.profile));
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_FALSE(report->violation.has_value()) << report->violation->what;
  }
}

// A live client whose call of save failed for want of a node reports that to the next one. Simulated trainers
// did not, and the other hosts waited for the deadline.
TEST(ATrainer, WhoseSaveFailedWithoutANodeReportsThatToTheNextNode) {
  Scenario scenario = of_eight_hosts(
      {{Kind::stalls, 80, 0, 31'107}, {Kind::restarts, 326, 1, 2'185}, {Kind::stalls, 9, 1, 3'176}});
  scenario.ranks = 8;
  scenario.ranks_per_host = 4;
  scenario.model = "gpt2";
  scenario.saves = 8;
  scenario.interval_ms = 20;
  const SaveReport save = simulated(scenario).saves[2];
  EXPECT_EQ(save.aborted_ranks, 8u);
  EXPECT_THAT(save.cause, HasSubstr("no node served this host"));
  EXPECT_LT(save.committed.greatest, seconds(40));
}

// Regression: the node saw its last trainer vanish and reported nothing, because no rank of its own waited.
// All other hosts waited two minutes, or five in mode rank-local.
TEST(ATrainer, ThatVanishesIsReportedToOtherHostsAlsoIfNoRankOfItsOwnWaits) {
  for (SaveMode mode : {SaveMode::collective_free, SaveMode::rank_local, SaveMode::collective}) {
    for (uint64_t host : {0u, 3u}) {  // host 0 is the coordinator's
      std::vector<Failure> failures;
      for (uint64_t rank = 8 * host; rank < 8 * (host + 1); ++rank) {
        failures.push_back({Kind::vanishes, 15'000});
        failures.back().rank = rank;
      }
      const SimulationReport report = simulated(of_eight_hosts(failures, mode));
      EXPECT_FALSE(report.violation.has_value()) << report.violation->what;
      EXPECT_EQ(report.saves[1].aborted_ranks, 56u);
      const std::string who =
          "rank " + std::to_string(8 * host) + " (host host" + std::to_string(host) + "): its trainer ended ";
      EXPECT_THAT(report.saves[1].cause,
                  HasSubstr(who + "before it staged this save: it closed its connection without notice"));
      EXPECT_LT(report.saves[1].committed.greatest, seconds(30));
    }
  }
}

TEST(ALink, CutOneWayTowardsTheCoordinatorHoldsASaveUpUntilItIsWhole) {
  Failure cut{Kind::cut, 20'100, 3, 12'000};
  cut.to_hosts = 1;
  const SaveReport save = simulated(of_eight_hosts({cut})).saves[1];
  EXPECT_EQ(save.aborted_ranks, 0u) << save.cause;
  EXPECT_GT(save.committed.least, seconds(11));
}

TEST(ALink, CutOneWayFromTheCoordinatorHidesTheDecisionUntilTheRootIsAsked) {
  Failure cut{Kind::cut, 20'100, 0, 15'000};
  cut.to_host = 3;
  cut.to_hosts = 1;
  const SaveReport save = simulated(of_eight_hosts({cut})).saves[1];
  EXPECT_EQ(save.aborted_ranks, 0u) << save.cause;
  EXPECT_LT(save.committed.least, seconds(2));
  EXPECT_GT(save.committed.greatest, seconds(2));  // when it takes the coordinator for dead
  EXPECT_LT(save.committed.greatest, seconds(4));
}

TEST(Messages, ThatAreLostDoubledDelayedAndReorderedHoldNoSaveUpForLong) {
  std::vector<Failure> failures;
  for (Kind kind : {Kind::loses, Kind::delays, Kind::doubles, Kind::reorders}) {
    Failure failure{kind, 0, 0, 60'000, 0};
    failure.permille = 300;
    failure.by_ms = kind == Kind::loses ? 0 : 40;
    failures.push_back(failure);
  }
  for (SaveMode mode : {SaveMode::collective_free, SaveMode::collective}) {
    const SimulationReport report = simulated(of_eight_hosts(failures, mode));
    for (const SaveReport& save : report.saves) {
      EXPECT_EQ(save.aborted_ranks, 0u) << save.cause;
      EXPECT_LT(save.committed.greatest, seconds(60));
    }
  }
}

TEST(ADisk, ThatIsSlowDelaysOneThatFailsAbortsByName) {
  Failure slow{Kind::disk_slow, 20'000, 3, 60'000};
  slow.factor = 8;
  const SaveReport before = simulated(of_eight_hosts({})).saves[1];
  const SaveReport slowed = simulated(of_eight_hosts({slow})).saves[1];
  EXPECT_EQ(slowed.aborted_ranks, 0u);
  EXPECT_GT(slowed.committed.least, 4 * before.committed.greatest);
  const SaveReport failed = simulated(of_eight_hosts({{Kind::disk_fails, 20'000, 3, 60'000}})).saves[1];
  EXPECT_EQ(failed.aborted_ranks, 64u);
  EXPECT_THAT(failed.cause, HasSubstr("host 3: WriteShard: the disk fails"));
  const SaveReport full = simulated(of_eight_hosts({{Kind::disk_full, 20'000, 3, 60'000}})).saves[1];
  EXPECT_EQ(full.aborted_ranks, 64u);
  EXPECT_THAT(full.cause, HasSubstr("host 3: WriteShard: the disk is full"));
}

TEST(ADisk, ThatHangsHoldsASaveUpUntilItsDeadline) {
  const SaveReport held = simulated(of_eight_hosts({{Kind::disk_hangs, 20'000, 3, 60'000}})).saves[1];
  EXPECT_EQ(held.aborted_ranks, 0u) << held.cause;
  EXPECT_GT(held.committed.least, seconds(50));
  const SaveReport given_up = simulated(of_eight_hosts({{Kind::disk_hangs, 20'000, 3, 600'000}})).saves[1];
  EXPECT_EQ(given_up.aborted_ranks, 64u);
  EXPECT_LT(given_up.committed.greatest, seconds(200));  // the last look at the write is news, too
}

// Regression: the coordinator swept only what it had aborted itself. Here nodes abort the save, because the
// coordinator's host cannot create a file. Oracle aborted-is-swept.
TEST(ADisk, ThatIsFullAtTheCoordinatorLeavesNoFilesOfAnAbortedSave) {
  for (SaveMode mode : {SaveMode::collective_free, SaveMode::collective}) {
    Scenario scenario = of_eight_hosts({{Kind::disk_full, 20'000, 0, 60'000}}, mode);
    const SimulationReport report = simulated(scenario);
    EXPECT_GT(report.saves[1].aborted_ranks, 0u);
  }
}

TEST(ADisk, ThatCannotBeReadForAWhileAbortsNoSave) {
  for (SaveMode mode : {SaveMode::collective_free, SaveMode::rank_local, SaveMode::collective}) {
    Failure failure{Kind::reads_fail, 0, 0, 30'000};
    failure.hosts = 0;
    for (const SaveReport& save : simulated(of_eight_hosts({failure}, mode)).saves) {
      EXPECT_EQ(save.aborted_ranks, 0u) << save.cause;
    }
  }
}

// Regression: nodes and coordinator gave up saves that were merely slow.
TEST(AStorage, ThatTakesTwentyMinutesForASaveAbortsNone) {
  for (SaveMode mode : {SaveMode::collective_free, SaveMode::collective}) {
    Scenario scenario = of_eight_hosts({}, mode);
    scenario.saves = 1;
    auto profile = find_profile(scenario.profile, {std::string(SHOAL_SOURCE_FOLDER) + "/sim/profiles"});
    ASSERT_TRUE(profile.ok());
    uint64_t bytes = 0;
    for (uint64_t rate : {profile->storage.client_bytes_per_s, uint64_t{0}}) {
      if (rate == 0) profile->storage.client_bytes_per_s = std::max<uint64_t>(1, bytes / 8 / 1200);
      auto report = simulate(scenario, *profile);
      ASSERT_TRUE(report.ok());
      EXPECT_FALSE(report->violation.has_value()) << report->violation->what;
      EXPECT_EQ(report->saves[0].aborted_ranks, 0u) << report->saves[0].cause;
      bytes = report->saves[0].bytes_staged;
      if (rate == 0) {
        EXPECT_GT(report->saves[0].committed.greatest, seconds(1000));
      }
    }
  }
}

// Regression: in mode rank-local, hosts that had written gave the save up five minutes later, although
// another host was still writing.
TEST(AStorage, ThatTakesTenMinutesLongerForOneHostAbortsNoSave) {
  for (SaveMode mode : kModes) {
    Scenario scenario = of_eight_hosts({}, mode);
    scenario.saves = 1;
    scenario.stragglers.hosts_permille = 125;  // one of eight
    scenario.stragglers.storage_permille = 40'000;
    scenario.profile_numbers["storage.client_bytes_per_s"] = 1'000'000'000;
    const SimulationReport report = simulated(scenario);
    EXPECT_FALSE(report.violation.has_value()) << report.violation->what;
    EXPECT_EQ(report.saves[0].aborted_ranks, 0u) << report.saves[0].cause;
    EXPECT_GT(report.saves[0].committed.greatest, seconds(500)) << "the others have written after 15 s";
  }
}

// Regression: with a profile that `shoal calibrate` had measured on a busy machine, a save was said to end
// too late.
TEST(AStorage, WhoseStreamsDifferMuchIsGivenTime) {
  Scenario scenario;
  scenario.ranks = 16;
  scenario.model = "gpt2";
  Profile profile = profile_named("nvme");
  profile.storage.client_bytes_per_s = profile.storage.total_bytes_per_s = 2'000'000'000;
  profile.storage.stream_tail_permille = 1'900;
  for (scenario.seed = 1; scenario.seed <= 10; ++scenario.seed) {
    const auto report = simulate(scenario, profile);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_FALSE(report->violation.has_value())
        << "seed " << scenario.seed << ": " << report->violation->what;
  }
}

TEST(ANode, ThatCannotBeginAgainIsSaidByTheClientsOfItsHost) {
  const SaveReport save =
      simulated(of_eight_hosts({{Kind::dies, 20'100, 0}, {Kind::restarts, 20'110, 3, 100}})).saves[1];
  EXPECT_EQ(save.aborted_ranks, 56u);
  EXPECT_LT(save.committed.greatest, seconds(61)) << "no coordinator is there that it could join";
  EXPECT_GT(save.committed.least, seconds(15)) << "as long as one is awaited";
}

TEST(ARank, ThatWaitsForASlabWhileNoNodeServesItIsToldSo) {
  Scenario scenario = of_eight_hosts({{Kind::dies, 10'500, 0}, {Kind::restarts, 10'510, 3, 100}});
  scenario.interval_ms = 1'000;
  scenario.saves = 16;  // two of which find a slab
  const SimulationReport report = simulated(scenario);
  EXPECT_FALSE(report.violation.has_value()) << report.violation->what;
  EXPECT_EQ(report.saves.back().aborted_ranks, 56u);
}

TEST(ANode, ThatBeginsAgainTwiceServesOnce) {
  const SimulationReport report = simulated(of_eight_hosts(
      {{Kind::restarts, 10'100, 3, 20'000}, {Kind::restarts, 10'200, 3, 300}, {Kind::dies, 21'000, 0}}));
  EXPECT_FALSE(report.violation.has_value()) << report.violation->what;
  EXPECT_EQ(report.saves[0].aborted_ranks, 0u) << report.saves[0].cause;
}

TEST(ARack, ThatDiesIsNamedByItsRanks) {
  const SaveReport save = simulated(of_eight_hosts({{Kind::dies, 20'150, 4, 0, 4}})).saves[1];
  EXPECT_EQ(save.aborted_ranks, 32u);
  EXPECT_THAT(save.cause, HasSubstr("hosts host4, host5, host6, host7 (ranks 32, 33,"));
}

}  // namespace
}  // namespace shoal::sim
