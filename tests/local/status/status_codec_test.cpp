#include <gtest/gtest.h>

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

}  // namespace
}  // namespace shoal::local
