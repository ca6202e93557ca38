// The live transport between two nodes of one process, over the loopback.
#include "transport/ucx/ucx_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/transport/recording_handler.h"
#include "transport/frame.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;

struct Pair {
  Pair() : listener(make_options(true, "listener")), connector(make_options(false, "connector")) {
    EXPECT_TRUE(listener.start().ok());
    EXPECT_TRUE(connector.start().ok());
    to_listener = connector.transport->connect(listener.address());
    EXPECT_TRUE(connector.handler.wait_up(to_listener))
        << connector.handler.wait_lost(to_listener).to_string();
    to_connector = listener.handler.wait_nth_up(1);
    EXPECT_NE(to_connector, 0u);
  }
  Node listener, connector;
  PeerId to_listener = 0, to_connector = 0;
};

Status send_patiently(Transport& transport, PeerId peer, const Bytes& message) {
  auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    Status sent = transport.send(peer, message);
    if (sent.code() != Code::busy || std::chrono::steady_clock::now() > give_up) return sent;
    std::this_thread::yield();
  }
}

TEST(UcxTransport, TellsBothSidesWhoTheOtherIs) {
  Pair pair;
  auto seen_by_connector = pair.connector.handler.record(pair.to_listener).up;
  auto seen_by_listener = pair.listener.handler.record(pair.to_connector).up;
  ASSERT_TRUE(seen_by_connector && seen_by_listener);
  EXPECT_EQ(seen_by_connector->name, "listener");
  EXPECT_EQ(seen_by_listener->name, "connector");
  EXPECT_EQ(seen_by_listener->job_id, "job-1");
  EXPECT_EQ(seen_by_listener->generation, 3u);
  EXPECT_EQ(seen_by_listener->epoch, 7u);
  EXPECT_EQ(seen_by_listener->incarnation, xxh3_128(as_view("connector")));
}

TEST(UcxTransport, CarriesMessagesOfAllSizesBothWaysInOrder) {
  Pair pair;
  std::vector<size_t> sizes = {8,       16,      4096, kMaxEagerBytes,        kMaxEagerBytes + 8,
                               64,      1 << 20, 24,   kRendezvousChunkBytes, kRendezvousChunkBytes + 8,
                               9 << 20, 8};
  for (size_t i = 0; i < sizes.size(); ++i) {
    ASSERT_TRUE(pair.connector.transport->send(pair.to_listener, make_message(sizes[i], i)).ok());
    ASSERT_TRUE(pair.listener.transport->send(pair.to_connector, make_message(sizes[i], 100 + i)).ok());
  }
  ASSERT_TRUE(pair.listener.handler.wait_messages(pair.to_connector, sizes.size()));
  ASSERT_TRUE(pair.connector.handler.wait_messages(pair.to_listener, sizes.size()));
  auto at_listener = pair.listener.handler.record(pair.to_connector).messages;
  auto at_connector = pair.connector.handler.record(pair.to_listener).messages;
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_TRUE(at_listener[i] == make_message(sizes[i], i)) << "message " << i;
    EXPECT_TRUE(at_connector[i] == make_message(sizes[i], 100 + i)) << "message " << i;
  }
}

TEST(UcxTransport, DeliversWhatWasSentBeforeTheHandshakeWasDone) {
  Node listener(make_options(true, "listener")), connector(make_options(false, "connector"));
  ASSERT_TRUE(listener.start().ok() && connector.start().ok());
  PeerId peer = connector.transport->connect(listener.address());
  ASSERT_TRUE(connector.transport->send(peer, make_message(64, 1)).ok());
  PeerId from = listener.handler.wait_nth_up(1);
  ASSERT_TRUE(listener.handler.wait_messages(from, 1));
  EXPECT_TRUE(listener.handler.record(from).messages[0] == make_message(64, 1));
}

TEST(UcxTransport, HoldsBackThoseWhoSendFasterThanThePeerReceives) {
  UcxTransportOptions options = make_options(false, "connector");
  options.limits.queued_messages_per_peer = 16;
  Node listener(make_options(true, "listener")), connector(std::move(options));
  ASSERT_TRUE(listener.start().ok() && connector.start().ok());
  PeerId peer = connector.transport->connect(listener.address());
  constexpr size_t kCount = 5000;
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_TRUE(send_patiently(*connector.transport, peer, make_message(8 + 8 * (i % 100), i)).ok());
  }
  PeerId from = listener.handler.wait_nth_up(1);
  ASSERT_TRUE(listener.handler.wait_messages(from, kCount));
  auto messages = listener.handler.record(from).messages;
  for (size_t i = 0; i < kCount; ++i) ASSERT_TRUE(messages[i] == make_message(8 + 8 * (i % 100), i)) << i;
}

// Regression: room that a message had taken was lost when the next one was announced before it was delivered.
TEST(UcxTransport, ReceivesFarMoreThanItsInboundBoundOneAfterTheOther) {
  UcxTransportOptions options = make_options(true, "listener");
  options.limits.inbound_bytes = 300 << 10;
  Node listener(std::move(options)), one(make_options(false, "one")), two(make_options(false, "two"));
  ASSERT_TRUE(listener.start().ok() && one.start().ok() && two.start().ok());
  constexpr size_t kCount = 300;
  for (Node* node : {&one, &two}) {
    PeerId peer = node->transport->connect(listener.address());
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_TRUE(send_patiently(*node->transport, peer, make_message(64 << 10, i)).ok());
    }
    ASSERT_TRUE(node->transport->send(peer, make_message(1 << 20, 7)).ok()) << "over the bound, it goes alone";
  }
  EXPECT_TRUE(listener.handler.wait([](auto& self) { return self.messages() == 2 * (kCount + 1); }));
}

}  // namespace
}  // namespace shoal::testing
