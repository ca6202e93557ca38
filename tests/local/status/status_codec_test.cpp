#include <gtest/gtest.h>

#include <random>

#include "local/messages/messages.h"
#include "tests/local/status/some_status.h"

namespace shoal::local {
namespace {

Result<NodeStatus> sent(const NodeStatus& status) {
  auto message = decode_local(encode_local(StatusReport{std::make_shared<const NodeStatus>(status)}));
  if (!message.ok()) return message.status();
  return *std::get<StatusReport>(*message).status;
}

TEST(StatusCodec, KeepsEveryField) {
  const Result<NodeStatus> read = sent(some_status());
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(*read, some_status());
}

TEST(StatusCodec, KeepsWhatIsNotThere) {
  const Result<NodeStatus> read = sent(NodeStatus());
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(*read, NodeStatus());
}

TEST(StatusCodec, CutsAStatusToItsBounds) {
  NodeStatus status = some_status();
  status.saves.resize(2 * kMaxStatusSaves);
  status.saves[0].awaited.resize(2 * kMaxStatusRanks);
  status.saves[0].trouble = std::string(2 * kMaxStatusTextBytes, 'x') + "\n";
  status.peers.resize(2 * kMaxStatusPeers);
  const Result<NodeStatus> read = sent(status);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->saves.size(), kMaxStatusSaves);
  EXPECT_EQ(read->saves[0].awaited.size(), kMaxStatusRanks);
  EXPECT_EQ(read->saves[0].trouble.size(), kMaxStatusTextBytes);
  EXPECT_EQ(read->peers.size(), kMaxStatusPeers);
}

TEST(HostStatusCodec, KeepsEveryField) {
  const Result<HostStatus> read = decode_host_status(encode_host_status(some_host_status()));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(*read, some_host_status());
}

TEST(JobStatusCodec, KeepsEveryFieldAndWhatIsNotThere) {
  for (const JobStatus& status : {some_job_status(), JobStatus()}) {
    const Result<JobStatus> read = decode_job_status(encode_job_status(status));
    ASSERT_TRUE(read.ok()) << read.status().to_string();
    EXPECT_EQ(*read, status);
  }
}

HostStatus far_too_large_host() {
  HostStatus host = some_host_status();
  host.host = std::string(2 * kMaxHostTextBytes, 'h');
  host.ranks.resize(2 * kMaxHostRanks);
  host.stopped_ranks.resize(2 * kMaxHostRanks);
  host.saves.resize(2 * kMaxHostSaves);
  for (SaveStatus& save : host.saves) {
    save.awaited.resize(2 * kMaxHostRanks);
    save.trouble = std::string(2 * kMaxHostTextBytes, 't') + "\n";
  }
  host.slow_calls.resize(2 * kMaxHostSlowCalls, {std::string(2 * kMaxHostTextBytes, 'c'), 1});
  host.last_error->line = std::string(2 * kMaxHostTextBytes, 'e');
  return host;
}

TEST(HostStatusCodec, CutsAHostToItsBoundsAndTheLargestOneFits) {
  const Bytes bytes = encode_host_status(far_too_large_host());
  EXPECT_LE(bytes.size(), kMaxHostStatusBytes);
  const Result<HostStatus> read = decode_host_status(bytes);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->ranks.size(), kMaxHostRanks);
  EXPECT_EQ(read->saves.size(), kMaxHostSaves);
  EXPECT_EQ(read->saves[0].awaited.size(), kMaxHostRanks);
  EXPECT_EQ(read->saves[0].trouble.size(), kMaxHostTextBytes);
  EXPECT_EQ(read->slow_calls.size(), kMaxHostSlowCalls);
}

TEST(JobStatusCodec, CutsAJobToItsBounds) {
  JobStatus status = some_job_status();
  status.hosts.resize(kMaxStatusHosts + 1);
  status.saves.resize(kMaxJobSaves + 1);
  status.saves[0].waits.resize(kMaxJobWaits + 1);
  const Result<JobStatus> read = decode_job_status(encode_job_status(status));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->hosts.size(), kMaxStatusHosts);
  EXPECT_EQ(read->saves.size(), kMaxJobSaves);
  EXPECT_EQ(read->saves[0].waits.size(), kMaxJobWaits);
  EXPECT_EQ(read->hosts_count, 1u) << "the number of all";
}

TEST(HostStatusCodec, DamagedBytesAreErrorsAndNoMore) {
  std::mt19937 random(7);
  for (const Bytes& whole : {encode_host_status(some_host_status()), encode_job_status(some_job_status())}) {
    for (int i = 0; i < 2000; ++i) {
      Bytes bytes = whole;
      bytes[random() % bytes.size()] ^= static_cast<std::byte>(1u << random() % 8);
      if (i % 5 == 0) bytes.resize(random() % bytes.size());
      (void)decode_host_status(bytes);
      (void)decode_job_status(bytes);
    }
  }
  EXPECT_FALSE(decode_host_status(Bytes(kMaxHostStatusBytes + 8)).ok());
  EXPECT_FALSE(decode_host_status({}).ok());
}

// A host states only its own ranks: at the coordinator's node a save awaits those of all hosts.
TEST(HostStatus, OfANodeHasOnlyItsOwnRanks) {
  NodeStatus node = some_status();
  node.ranks = {0, 1};
  node.saves[0].awaited = {1, 2, 3};
  node.saves[0].awaited_count = 3;
  const HostStatus host = host_status_of(node);
  EXPECT_EQ(host.host, "a");
  EXPECT_EQ(host.saves[0].awaited, std::vector<Rank>{1});
  EXPECT_EQ(host.saves[0].awaited_count, 1u);
  EXPECT_EQ(host.stopped_ranks, std::vector<Rank>{0});
  EXPECT_EQ(host.last_error->line, "step 800 (g3a1) aborted");
}

}  // namespace
}  // namespace shoal::local
