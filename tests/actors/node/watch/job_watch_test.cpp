// When nodes ask each other for their status, and what whoever asks receives.
#include "actors/node/watch/job_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace shoal::actors {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

transport::Identity named(const std::string& name, uint8_t process = 1) {
  transport::Identity identity;
  identity.name = name;
  identity.incarnation.bytes[0] = std::byte{process};
  return identity;
}

class WatchedNode {
 public:
  explicit WatchedNode(const std::string& host, bool coordinates)
      : watch_({.coordinates = coordinates,
                .now = [this] { return now_.load(); },
                .status =
                    [host, coordinates] {
                      local::NodeStatus own;
                      own.host = host;
                      own.coordinates = coordinates;
                      return own;
                    },
                .facts = [] { return std::make_shared<const JobFacts>(); },
                .send =
                    [this](NodeId to, const LinkMessage& message) {
                      std::lock_guard lock(mutex_);
                      sent_.emplace_back(to, message);
                    }}) {}

  JobWatch& watch() { return watch_; }
  void pass_ms(TimeNs ms) { now_ = now_.load() + ms * kMillisecond; }
  std::vector<std::pair<NodeId, LinkMessage>> take_sent() {
    std::lock_guard lock(mutex_);
    return std::exchange(sent_, {});
  }
  // Ticks until the question of another thread is answered.
  local::JobStatus asked(std::chrono::milliseconds patience = std::chrono::minutes(1)) {
    auto answer = std::async(std::launch::async, [&] { return watch_.ask(patience); });
    while (answer.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      watch_.tick();
      std::this_thread::yield();
    }
    return answer.get();
  }
  void has(NodeId from, const std::string& host, std::vector<Rank> ranks = {}) {
    local::HostStatus status;
    status.host = host;
    status.ranks_count = ranks.size();
    status.ranks = std::move(ranks);
    status.bytes_written = 7;
    watch_.host_status_received(from, local::encode_host_status(status));
  }

 private:
  std::atomic<TimeNs> now_{1'000'000 * kMillisecond};
  std::mutex mutex_;
  std::vector<std::pair<NodeId, LinkMessage>> sent_;
  JobWatch watch_;
};

constexpr NodeId kB = kFirstPeerNode, kC = kFirstPeerNode + 1;

TEST(JobWatch, SendsNothingUnlessSomebodyAsks) {
  WatchedNode node("a", true);
  node.watch().peer_up(kB, named("b:1"));
  for (int i = 0; i < 10; ++i) {
    node.pass_ms(10'000);
    node.watch().tick();
  }
  EXPECT_THAT(node.take_sent(), IsEmpty());
}

TEST(JobWatch, TheCoordinatorAsksEachNodeAndShowsAll) {
  WatchedNode node("a", true);
  node.watch().peer_up(kB, named("b:12"));
  EXPECT_EQ(node.watch().newest(), nullptr);
  node.watch().tick();
  const auto sent = node.take_sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].first, kB);
  EXPECT_TRUE(std::holds_alternative<link::HostStatusRequest>(sent[0].second));
  node.has(kB, "a name that it gave itself");
  node.watch().tick();
  const auto job = node.watch().newest();
  ASSERT_NE(job, nullptr);
  ASSERT_EQ(job->hosts.size(), 2u);
  EXPECT_EQ(job->hosts[1].host, "b") << "the name of its session";
  EXPECT_EQ(job->hosts[1].pid, 12);
  EXPECT_EQ(job->hosts[1].bytes_written, 7u);
  EXPECT_EQ(job->hosts[1].state, local::HostState::answered);
}

TEST(JobWatch, ANodeThatDoesNotAnswerIsSilentAndOneThatLeftIsLost) {
  WatchedNode node("a", true);
  node.watch().peer_up(kB, named("b:1"));
  node.watch().peer_up(kC, named("c:1"));
  node.watch().newest();
  node.watch().tick();
  node.watch().peer_lost(kC);
  node.pass_ms(kHostAnswerMs - 1);
  node.watch().tick();
  EXPECT_EQ(node.watch().newest(), nullptr) << "b may still answer";
  node.pass_ms(1);
  node.watch().tick();
  const auto job = node.watch().newest();
  ASSERT_NE(job, nullptr);
  ASSERT_EQ(job->hosts.size(), 3u);
  EXPECT_EQ(job->hosts[1].state, local::HostState::silent);
  EXPECT_EQ(job->hosts[2].state, local::HostState::lost);
  EXPECT_EQ(job->hosts_silent, 1u);
  EXPECT_EQ(job->hosts_lost, 1u);
}

TEST(JobWatch, CountsTheNodesThatAHostHadBefore) {
  WatchedNode node("a", true);
  node.watch().peer_up(kB, named("b:1", 1));
  node.watch().peer_lost(kB);
  node.watch().peer_up(kC, named("b:1", 1));  // the same process, over a new session
  node.watch().peer_lost(kC);
  node.watch().peer_up(kC + 1, named("b:2", 2));
  node.watch().newest();
  node.watch().tick();
  node.has(kC + 1, "b");
  node.watch().tick();
  const auto job = node.watch().newest();
  EXPECT_EQ(job->hosts[1].restarts, 1u);
  EXPECT_EQ(job->hosts[1].pid, 2);
}

// Regression: a host that was replaced stayed lost until the job ended.
TEST(JobWatch, ForgetsALostHostWhoseRanksAnotherOneHas) {
  for (const std::string& dead : {std::string("b"), std::string("f9")}) {
    WatchedNode node("a", true);
    node.watch().peer_up(kB, named(dead + ":1"));
    node.watch().newest();
    node.watch().tick();
    node.has(kB, dead, {1});
    node.watch().tick();
    node.watch().peer_lost(kB);
    node.watch().peer_up(kC, named("c:1"));
    node.pass_ms(kGatherPauseMs);
    node.watch().newest();
    node.watch().tick();
    node.has(kC, "c", {1});
    node.watch().tick();
    auto job = node.watch().newest();
    EXPECT_EQ(job->hosts_lost, 0u);
    ASSERT_EQ(job->hosts.size(), 2u);
    EXPECT_EQ(job->hosts[1].host, "c");
    EXPECT_THAT(job->hosts[1].ranks, ElementsAre(1));

    node.watch().peer_up(kC + 1, named(dead + ":2", 2));
    node.pass_ms(kGatherPauseMs);
    node.watch().newest();
    node.watch().tick();
    node.has(kC, "c", {1});
    node.has(kC + 1, dead);
    node.watch().tick();
    job = node.watch().newest();
    ASSERT_EQ(job->hosts.size(), 3u) << "it came back";
    for (const local::HostStatus& host : job->hosts) EXPECT_EQ(host.restarts, 0u) << "a new host";
  }
}

TEST(JobWatch, ManyWhoAskAtOnceCostOneGathering) {
  WatchedNode node("a", true);
  node.watch().peer_up(kB, named("b:1"));
  node.watch().peer_up(kC, named("c:1"));
  node.watch().job_status_requested(kB);
  node.watch().job_status_requested(kC);
  node.watch().newest();
  node.watch().tick();
  EXPECT_EQ(node.take_sent().size(), 2u) << "each host is asked once";
  node.has(kB, "b");
  node.has(kC, "c");
  node.watch().tick();
  auto sent = node.take_sent();
  ASSERT_EQ(sent.size(), 2u);
  for (const auto& [to, message] : sent) {
    const auto job = local::decode_job_status(std::get<link::JobStatusTable>(message).status);
    ASSERT_TRUE(job.ok());
    EXPECT_EQ(job->hosts_count, 3u);
  }
  node.watch().job_status_requested(kB);
  node.watch().tick();
  sent = node.take_sent();
  ASSERT_EQ(sent.size(), 1u) << "a table that is so young answers at once";
  EXPECT_TRUE(std::holds_alternative<link::JobStatusTable>(sent[0].second));
  node.pass_ms(kGatherPauseMs);
  node.watch().job_status_requested(kB);
  node.watch().tick();
  sent = node.take_sent();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<link::HostStatusRequest>(sent[0].second));
}

TEST(JobWatch, AsksManyHostsInSlices) {
  WatchedNode node("a", true);
  const size_t hosts = kHostsAskedPerTick + 3;
  for (size_t i = 0; i < hosts; ++i) node.watch().peer_up(kB + i, named("h" + std::to_string(i) + ":1"));
  node.watch().newest();
  node.watch().tick();
  EXPECT_EQ(node.take_sent().size(), kHostsAskedPerTick);
  node.watch().tick();
  EXPECT_EQ(node.take_sent().size(), 3u);
}

TEST(JobWatch, WhatANodeSendsUnaskedOrMalformedIsNotShown) {
  WatchedNode node("a", true);
  node.watch().peer_up(kB, named("b:1"));
  node.has(kB, "b");
  node.watch().newest();
  node.watch().tick();
  node.watch().host_status_received(kB, Bytes(100, std::byte{0xff}));
  node.watch().tick();
  const auto job = node.watch().newest();
  ASSERT_NE(job, nullptr);
  EXPECT_EQ(job->hosts[1].state, local::HostState::silent);
  EXPECT_EQ(job->hosts[1].bytes_written, 0u);
}

TEST(JobWatch, AnotherNodeAsksTheCoordinatorEachTimeItIsAsked) {
  WatchedNode node("b", false);
  node.watch().peer_up(kCoordinatorNode, named("a:1"));
  for (uint64_t hosts : {77, 78}) {  // the second time soon after the first
    auto answer = std::async(std::launch::async, [&] { return node.watch().ask(std::chrono::minutes(1)); });
    std::vector<std::pair<NodeId, LinkMessage>> sent;
    while (sent.empty()) sent = node.take_sent();
    EXPECT_EQ(sent[0].first, kCoordinatorNode);
    EXPECT_TRUE(std::holds_alternative<link::JobStatusRequest>(sent[0].second));
    local::JobStatus table;
    table.hosts_count = hosts;
    node.watch().job_status_received(local::encode_job_status(table));
    const local::JobStatus got = answer.get();
    EXPECT_EQ(got.hosts_count, hosts);
    EXPECT_EQ(got.incomplete, "");
  }
}

TEST(JobWatch, WithoutTheCoordinatorANodeShowsItsOwnHostAndSaysSo) {
  WatchedNode node("b", false);
  local::JobStatus job = node.watch().ask(std::chrono::minutes(1));
  EXPECT_EQ(job.incomplete, "the coordinator is not connected: this is what host b knows");
  ASSERT_EQ(job.hosts.size(), 1u);
  EXPECT_EQ(job.hosts[0].host, "b");
  node.watch().peer_up(kCoordinatorNode, named("a:1"));
  job = node.watch().ask(std::chrono::milliseconds(1));
  EXPECT_THAT(job.incomplete, HasSubstr("the coordinator did not answer within 1 ms"));
  node.watch().close();
  EXPECT_THAT(node.watch().ask(std::chrono::minutes(1)).incomplete, HasSubstr("the node is stopping"));
}

TEST(JobWatch, ANodeAsksTheNextCoordinatorForWhatTheOneBeforeDidNotAnswer) {
  WatchedNode node("b", false);
  for (const char* coordinator : {"a:1", "a:2"}) {
    node.watch().peer_up(kCoordinatorNode, named(coordinator));
    (void)node.watch().ask(std::chrono::milliseconds(1));
    EXPECT_EQ(node.take_sent().size(), 1u) << coordinator;
    node.watch().peer_lost(kCoordinatorNode);
  }
}

TEST(JobWatch, ANodeWhoseCoordinatorHasRetiredAsksTheNextOne) {
  WatchedNode node("a", true);
  node.watch().peer_up(kB, named("b:1"));
  node.watch().job_status_requested(kB);
  node.watch().retired();
  node.watch().peer_up(kCoordinatorNode, named("c:1"));
  node.watch().tick();
  EXPECT_THAT(node.take_sent(), IsEmpty());
  (void)node.watch().ask(std::chrono::milliseconds(1));
  const auto sent = node.take_sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].first, kCoordinatorNode);
}

// Regression: the node crashed if its coordinator retired before the first table was made.
TEST(JobWatch, WhoAskedBeforeTheCoordinatorRetiredIsShownTheTableOfTheNextOne) {
  WatchedNode node("a", true);
  node.watch().peer_up(kB, named("b:1"));
  auto answer = std::async(std::launch::async, [&] { return node.watch().ask(std::chrono::minutes(1)); });
  while (node.take_sent().empty()) node.watch().tick();
  node.watch().retired();
  node.watch().peer_up(kCoordinatorNode, named("c:1"));
  local::JobStatus table;
  table.hosts_count = 7;
  node.watch().job_status_received(local::encode_job_status(table));
  EXPECT_EQ(answer.get().hosts_count, 7u);
}

TEST(JobWatch, ANodeAnswersTheCoordinatorOnItsNextTick) {
  WatchedNode node("b", false);
  node.watch().peer_up(kCoordinatorNode, named("a:1"));
  node.watch().host_status_requested();
  EXPECT_THAT(node.take_sent(), IsEmpty()) << "not on the thread of the transport";
  node.watch().tick();
  const auto sent = node.take_sent();
  ASSERT_EQ(sent.size(), 1u);
  const auto status = local::decode_host_status(std::get<link::HostStatusReport>(sent[0].second).status);
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->host, "b");
}

TEST(JobWatch, AtTheCoordinatorAnswersWhoAsksOnItsHost) {
  WatchedNode node("a", true);
  const local::JobStatus job = node.asked();
  ASSERT_EQ(job.hosts.size(), 1u);
  EXPECT_TRUE(job.hosts[0].coordinates);
}

}  // namespace
}  // namespace shoal::actors
