// What the coordinator's node makes of the answers of all nodes.
#include "actors/node/watch/job_table.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shoal::actors {
namespace {

using local::HostState;
using local::HostStatus;
using local::SavePhase;
using local::WaitReason;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const AttemptKey kSave = {1, 7, 1};

local::SaveStatus save_in(SavePhase phase, std::vector<Rank> awaited = {}) {
  local::SaveStatus save;
  save.key = kSave;
  save.phase = phase;
  save.age_ms = 100;
  save.awaited_count = awaited.size();
  save.awaited = std::move(awaited);
  return save;
}

HostStatus host_of(const std::string& name, std::vector<Rank> ranks, std::vector<local::SaveStatus> saves) {
  HostStatus host;
  host.host = name;
  host.ranks_count = ranks.size();
  host.ranks = std::move(ranks);
  host.saves_count = saves.size();
  host.saves = std::move(saves);
  return host;
}

// Host a coordinates and has ranks 0 and 1. `awaited`: ranks of the job that have not reported.
local::NodeStatus coordinator(std::vector<Rank> awaited) {
  local::NodeStatus own;
  own.host = "a";
  own.coordinates = true;
  own.world_size = 4;
  own.ranks = {0, 1};
  own.saves = {save_in(SavePhase::waiting, std::move(awaited))};
  own.saves_count = 1;
  return own;
}

local::JobStatus table_of(const local::NodeStatus& own, std::vector<HostStatus> others,
                          const JobFacts& facts = {}) {
  others.push_back(local::host_status_of(own));
  return job_status_of(own, std::move(others), facts);
}

TEST(JobTable, NamesTheHostWhoseRanksHaveNotStaged) {
  const auto job = table_of(coordinator({2, 3}), {host_of("b", {2, 3}, {save_in(SavePhase::staging, {3})})});
  ASSERT_EQ(job.saves.size(), 1u);
  EXPECT_EQ(job.saves[0].save.phase, SavePhase::staging);
  ASSERT_EQ(job.saves[0].waits.size(), 1u);
  EXPECT_EQ(job.saves[0].waits[0].host, "b");
  EXPECT_EQ(job.saves[0].waits[0].reason, WaitReason::staging);
  EXPECT_THAT(job.saves[0].waits[0].ranks, ElementsAre(3)) << "rank 2 has staged";
}

TEST(JobTable, NamesAHostWithoutAnAnswerByTheRanksThatItStatedBefore) {
  for (HostState state : {HostState::silent, HostState::lost}) {
    HostStatus stopped;
    stopped.host = "b";
    stopped.state = state;
    const auto job = table_of(coordinator({2, 3}), {stopped}, {.ranks_of_hosts = {{"b", {2, 3}}}});
    ASSERT_EQ(job.saves[0].waits.size(), 1u);
    EXPECT_EQ(job.saves[0].waits[0].host, "b");
    EXPECT_EQ(job.saves[0].waits[0].reason,
              state == HostState::silent ? WaitReason::silent : WaitReason::lost);
    EXPECT_THAT(job.saves[0].waits[0].ranks, ElementsAre(2, 3));
    EXPECT_EQ(job.hosts_silent + job.hosts_lost, 1u);
    EXPECT_THAT(job.hosts[1].ranks, ElementsAre(2, 3));
  }
}

HostStatus without_answer(const std::string& name, HostState state, std::vector<Rank> ranks) {
  HostStatus host = host_of(name, std::move(ranks), {});
  host.state = state;
  return host;
}

// Regression: of two hosts with the same ranks, the last one by name got them, although it was dead.
TEST(JobTable, LeavesOutALostHostWhoseRanksAnotherOneHas) {
  for (const char* dead : {"b", "f9"}) {
    const HostStatus live = host_of("c", {2, 3}, {save_in(SavePhase::waiting)});
    JobFacts stated, claimed;
    stated.ranks_of_hosts[dead] = {2, 3};
    claimed.ranks_of_hosts[dead] = {};
    const std::vector<Rank> answered_before = {2, 3}, never_answered = {};
    const std::vector<std::pair<std::vector<Rank>, JobFacts>> cases = {
        {answered_before, JobFacts{}}, {never_answered, stated}, {never_answered, claimed}};
    for (const auto& [ranks, facts] : cases) {
      const local::NodeStatus own = coordinator({2, 3});
      std::vector<std::string> replaced;
      const auto job =
          job_status_of(own, {without_answer(dead, HostState::lost, ranks), live, local::host_status_of(own)},
                        facts, &replaced);
      EXPECT_THAT(replaced, ElementsAre(dead));
      EXPECT_EQ(job.hosts_lost, 0u);
      EXPECT_EQ(job.hosts_count, 2u);
      ASSERT_EQ(job.hosts.size(), 2u);
      EXPECT_EQ(job.hosts[1].host, "c");
      ASSERT_EQ(job.saves[0].waits.size(), 1u);
      EXPECT_EQ(job.saves[0].waits[0].host, "c");
      EXPECT_EQ(job.saves[0].waits[0].reason, WaitReason::reporting);
      EXPECT_THAT(job.saves[0].waits[0].ranks, ElementsAre(2, 3));
    }
  }
}

TEST(JobTable, AHostWithoutAnAnswerHasOnlyRanksThatNobodyElseHas) {
  for (const char* dead : {"b", "f9"}) {
    for (HostState state : {HostState::silent, HostState::lost}) {
      const auto job = table_of(coordinator({2, 3}), {without_answer(dead, state, {2, 3}),
                                                      host_of("c", {2}, {save_in(SavePhase::waiting)})});
      EXPECT_EQ(job.hosts_silent + job.hosts_lost, 1u) << "nobody else has rank 3";
      ASSERT_EQ(job.saves[0].waits.size(), 2u);
      EXPECT_EQ(job.saves[0].waits[0].host, dead);
      EXPECT_THAT(job.saves[0].waits[0].ranks, ElementsAre(3));
      EXPECT_EQ(job.saves[0].waits[1].host, "c");
      EXPECT_THAT(job.saves[0].waits[1].ranks, ElementsAre(2));
    }
  }
}

TEST(JobTable, DoesNotWaitForASilentHostWhoseRanksAnotherOneHas) {
  for (const char* silent : {"b", "f9"}) {
    const auto job = table_of(coordinator({2, 3}), {without_answer(silent, HostState::silent, {2, 3}),
                                                    host_of("c", {2, 3}, {save_in(SavePhase::waiting)})});
    EXPECT_EQ(job.hosts_silent, 1u) << "it is connected";
    ASSERT_EQ(job.saves[0].waits.size(), 1u);
    EXPECT_EQ(job.saves[0].waits[0].host, "c");
  }
}

TEST(JobTable, ShowsALostHostOfWhichNoRanksAreKnown) {
  const auto job = table_of(coordinator({}), {without_answer("b", HostState::lost, {})});
  EXPECT_EQ(job.hosts_lost, 1u);
  EXPECT_EQ(job.hosts.size(), 2u);
}

TEST(JobTable, SaysWhichCallOfAHostHangs) {
  HostStatus slow = host_of("b", {2, 3}, {save_in(SavePhase::writing, {2})});
  slow.slow_calls = {{"fsync of /root/step-00000007", 9'400}};
  const auto job = table_of(coordinator({2, 3}), {slow});
  EXPECT_EQ(job.saves[0].waits[0].reason, WaitReason::writing);
  EXPECT_EQ(job.saves[0].waits[0].detail, "fsync of /root/step-00000007 has taken 9 s and has not returned");
}

TEST(JobTable, AHostThatHasWrittenAndIsAwaitedHasNotReported) {
  const auto job = table_of(coordinator({2, 3}), {host_of("b", {2, 3}, {save_in(SavePhase::waiting)})});
  EXPECT_EQ(job.saves[0].waits[0].reason, WaitReason::reporting);
}

// Regression: a host that waited for the roster was said to have written and not reported.
TEST(JobTable, DoesNotWaitForAHostThatWaitsForTheRoster) {
  const HostStatus plans = host_of("b", {2}, {save_in(SavePhase::planning, {2})});
  auto job = table_of(coordinator({2, 3}), {plans, host_of("c", {3}, {save_in(SavePhase::staging, {3})})});
  ASSERT_EQ(job.saves[0].waits.size(), 1u);
  EXPECT_EQ(job.saves[0].waits[0].host, "c");
  job = table_of(coordinator({2}), {plans});
  EXPECT_EQ(job.saves[0].save.phase, SavePhase::planning);
  EXPECT_THAT(job.saves[0].waits, IsEmpty()) << "nor does the coordinator decide yet";
  EXPECT_EQ(job.saves[0].waits_count, 0u);
}

TEST(JobTable, NamesAHostThatWaitsForTheRosterIfSomethingHangsThere) {
  HostStatus slow = host_of("b", {2}, {save_in(SavePhase::planning, {2})});
  slow.slow_calls = {{"open of /root", 6'000}};
  HostStatus stopped = host_of("c", {3}, {save_in(SavePhase::planning, {3})});
  stopped.stopped_ranks = {3};
  const auto job = table_of(coordinator({2, 3}), {slow, stopped});
  ASSERT_EQ(job.saves[0].waits.size(), 2u);
  EXPECT_EQ(job.saves[0].waits[0].host, "b");
  EXPECT_EQ(job.saves[0].waits[0].reason, WaitReason::writing);
  EXPECT_EQ(job.saves[0].waits[1].host, "c");
  EXPECT_EQ(job.saves[0].waits[1].reason, WaitReason::staging);
  EXPECT_THAT(job.saves[0].waits[1].ranks, ElementsAre(3));
}

// Regression: the first hosts by name were shown, and the one that held up the save was cut.
TEST(JobTable, ShowsTheWorstWaitsFirst) {
  std::vector<HostStatus> hosts;
  std::vector<Rank> awaited;
  const auto add = [&](const std::string& name, std::optional<SavePhase> phase) {
    const Rank rank = static_cast<Rank>(2 + hosts.size());
    awaited.push_back(rank);
    std::vector<local::SaveStatus> saves;
    if (phase) saves.push_back(save_in(*phase, {rank}));
    hosts.push_back(host_of(name, {rank}, std::move(saves)));
    return &hosts.back();
  };
  for (size_t i = 0; i < local::kMaxJobWaits; ++i) add(fmt::format("h{:03}", i), SavePhase::waiting);
  add("t", SavePhase::writing);
  add("u", SavePhase::staging);
  add("v", SavePhase::staging)->stopped_ranks = {9};
  add("w", SavePhase::writing)->slow_calls = {{"fsync of /root", 6'000}};
  add("x", std::nullopt)->state = HostState::lost;
  add("y", std::nullopt)->state = HostState::silent;
  const auto job = table_of(coordinator(awaited), hosts);
  const std::vector<local::HostWait>& waits = job.saves[0].waits;
  ASSERT_EQ(waits.size(), local::kMaxJobWaits);
  EXPECT_EQ(job.saves[0].waits_count, hosts.size());
  std::vector<std::string> first;
  for (size_t i = 0; i < 7; ++i) first.push_back(waits[i].host);
  EXPECT_THAT(first, ElementsAre("y", "x", "w", "v", "u", "t", "h000"));
}

TEST(JobTable, AHostThatDoesNotKnowTheSaveHasNotStaged) {
  const auto job = table_of(coordinator({2, 3}), {host_of("b", {2, 3}, {})});
  EXPECT_EQ(job.saves[0].waits[0].reason, WaitReason::staging);
  EXPECT_THAT(job.saves[0].waits[0].ranks, ElementsAre(2, 3));
}

TEST(JobTable, ListsRanksThatNoHostHas) {
  const auto job = table_of(coordinator({2, 3}), {});
  ASSERT_EQ(job.saves[0].waits.size(), 1u);
  EXPECT_EQ(job.saves[0].waits[0].host, "");
  EXPECT_THAT(job.saves[0].waits[0].ranks, ElementsAre(2, 3));
}

TEST(JobTable, OnceAllRanksHaveReportedTheSaveWaitsForTheDecision) {
  const auto job = table_of(coordinator({}), {host_of("b", {2, 3}, {save_in(SavePhase::waiting)})});
  ASSERT_EQ(job.saves[0].waits.size(), 1u);
  EXPECT_EQ(job.saves[0].waits[0].host, "a");
  EXPECT_EQ(job.saves[0].waits[0].reason, WaitReason::deciding);
}

TEST(JobTable, InModeRankLocalOnlyHostsThatAreBehindAreAwaited) {
  const JobFacts facts{.ranks_of_hosts = {}, .is_rank_local = true};
  HostStatus through = host_of("c", {4}, {});
  through.last_commit = local::CommitStatus{kSave, 1, 1, 1, std::nullopt};
  const auto job =
      table_of(coordinator({2, 3, 4, 5}),
               {host_of("b", {2, 3}, {save_in(SavePhase::waiting)}), through, host_of("d", {5}, {})}, facts);
  ASSERT_EQ(job.saves[0].waits.size(), 1u) << "nobody reports in this mode";
  EXPECT_EQ(job.saves[0].waits[0].host, "d");
}

TEST(JobTable, AddsUpTheBytesOfAllHosts) {
  local::NodeStatus own = coordinator({3});
  own.saves[0].bytes_staged = 5;
  local::SaveStatus there = save_in(SavePhase::writing, {3});
  there.bytes_staged = 7;
  there.trouble = "no space";
  const auto job = table_of(own, {host_of("b", {2, 3}, {there})});
  EXPECT_EQ(job.saves[0].save.bytes_staged, 12u);
  EXPECT_EQ(job.saves[0].save.trouble, "b: no space");
}

TEST(JobTable, OfMoreHostsThanItHoldsKeepsThoseToLookAt) {
  std::vector<HostStatus> hosts;
  for (size_t i = 0; i < local::kMaxStatusHosts + 10; ++i)
    hosts.push_back(host_of(fmt::format("h{:05}", i), {}, {}));
  hosts[hosts.size() - 1].state = HostState::silent;
  hosts[hosts.size() - 2].slow_calls = {{"open of /root", 6'000}};
  const std::string silent = hosts[hosts.size() - 1].host, slow = hosts[hosts.size() - 2].host;
  local::NodeStatus own = coordinator({});
  own.saves.clear();
  const auto job = table_of(own, hosts);
  EXPECT_EQ(job.hosts.size(), local::kMaxStatusHosts);
  EXPECT_EQ(job.hosts_count, local::kMaxStatusHosts + 11);
  EXPECT_EQ(job.hosts[0].host, "a") << "it coordinates";
  EXPECT_EQ(job.hosts[1].host, slow);
  EXPECT_EQ(job.hosts[2].host, silent);
  EXPECT_THAT(job.saves, IsEmpty());
}

}  // namespace
}  // namespace shoal::actors
