// What the coordinator's node makes of the answers of all nodes.
#include "actors/node/watch/job_table.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
