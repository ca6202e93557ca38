// The live transport between two nodes of one process, over the loopback.
#include "transport/live/make_transport.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <future>
#include <list>
#include <thread>

#include "base/host_port.h"
#include "tests/transport/live/recording_handler.h"
#include "transport/frame.h"
#include "transport/tcp/resolver.h"
#include "transport/tcp/socket.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class LiveTransport : public OfEachTransport {};
INSTANTIATE_TEST_SUITE_P(Of, LiveTransport, kEachTransport(), kNameOfTransport);

class UcxTransport : public ::testing::Test {
 protected:
  UcxTransport() { transport_of_listeners = transport::TransportKind::ucx; }
  ~UcxTransport() override { transport_of_listeners = transport::TransportKind::tcp; }
};

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
  transport::PeerId to_listener = 0, to_connector = 0;
};

Status send_patiently(transport::Transport& transport, transport::PeerId peer, const Bytes& message) {
  auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    Status sent = transport.send(peer, message);
    if (sent.code() != Code::busy || std::chrono::steady_clock::now() > give_up) return sent;
    std::this_thread::yield();
  }
}

TEST_P(LiveTransport, TellsBothSidesWhoTheOtherIs) {
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

TEST_P(LiveTransport, CarriesMessagesOfAllSizesBothWaysInOrder) {
  Pair pair;
  std::vector<size_t> sizes = {
      8,       16,      4096, transport::kMaxEagerBytes,        transport::kMaxEagerBytes + 8,
      64,      1 << 20, 24,   transport::kRendezvousChunkBytes, transport::kRendezvousChunkBytes + 8,
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
  EXPECT_TRUE(pair.connector.handler.wait_sent(pair.to_listener, sizes.size()));
  EXPECT_TRUE(pair.listener.handler.wait_sent(pair.to_connector, sizes.size()));
  EXPECT_EQ(pair.connector.handler.record(pair.to_listener).sent, sizes.size());
}

TEST_P(LiveTransport, DeliversWhatWasSentBeforeTheHandshakeWasDone) {
  Node listener(make_options(true, "listener")), connector(make_options(false, "connector"));
  ASSERT_TRUE(listener.start().ok() && connector.start().ok());
  transport::PeerId peer = connector.transport->connect(listener.address());
  ASSERT_TRUE(connector.transport->send(peer, make_message(64, 1)).ok());
  transport::PeerId from = listener.handler.wait_nth_up(1);
  ASSERT_TRUE(listener.handler.wait_messages(from, 1));
  EXPECT_TRUE(listener.handler.record(from).messages[0] == make_message(64, 1));
}

// Regression: what was sent while the transport's thread was about to take messages, having taken the
// commands before, was dropped with those connections that it had not heard of.
TEST_P(LiveTransport, DeliversWhatIsSentAtOnceToManyThatItConnectsTo) {
  constexpr size_t kListeners = 12;
  std::list<Node> listeners;
  for (size_t i = 0; i < kListeners; ++i) {
    ASSERT_TRUE(listeners.emplace_back(make_options(true, "listener-" + std::to_string(i))).start().ok());
  }
  Node connector(make_options(false, "connector"));
  ASSERT_TRUE(connector.start().ok());
  for (Node& listener : listeners) {
    const transport::PeerId peer = connector.transport->connect(listener.address());
    ASSERT_TRUE(connector.transport->send(peer, make_message(64, 1)).ok());
  }
  for (Node& listener : listeners) {
    EXPECT_TRUE(listener.handler.wait([](auto& self) { return self.messages() == 1; }));
    if (HasFailure()) return;
  }
}

TEST_P(LiveTransport, HoldsBackThoseWhoSendFasterThanThePeerReceives) {
  transport::TransportOptions options = make_options(false, "connector");
  options.limits.queued_messages_per_peer = 16;
  Node listener(make_options(true, "listener")), connector(std::move(options));
  ASSERT_TRUE(listener.start().ok() && connector.start().ok());
  transport::PeerId peer = connector.transport->connect(listener.address());
  constexpr size_t kCount = 5000;
  for (size_t i = 0; i < kCount; ++i) {
    Status sent = send_patiently(*connector.transport, peer, make_message(8 + 8 * (i % 100), i));
    ASSERT_TRUE(sent.ok()) << "message " << i << ": " << sent.to_string();
  }
  transport::PeerId from = listener.handler.wait_nth_up(1);
  ASSERT_TRUE(listener.handler.wait_messages(from, kCount))
      << listener.handler.record(from).messages.size()
      << " messages have come, lost: " << connector.handler.record(peer).lost.size();
  auto messages = listener.handler.record(from).messages;
  for (size_t i = 0; i < kCount; ++i) ASSERT_TRUE(messages[i] == make_message(8 + 8 * (i % 100), i)) << i;
  EXPECT_TRUE(connector.handler.wait_sent(peer, kCount));
}

// Regression: room that a message had taken was lost when the next one was announced before it was delivered.
TEST_P(LiveTransport, ReceivesFarMoreThanItsInboundBoundOneAfterTheOther) {
  transport::TransportOptions options = make_options(true, "listener");
  options.limits.inbound_bytes = 300 << 10;
  Node listener(std::move(options)), one(make_options(false, "one")), two(make_options(false, "two"));
  ASSERT_TRUE(listener.start().ok() && one.start().ok() && two.start().ok());
  constexpr size_t kCount = 300;
  for (Node* node : {&one, &two}) {
    transport::PeerId peer = node->transport->connect(listener.address());
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_TRUE(send_patiently(*node->transport, peer, make_message(64 << 10, i)).ok());
    }
    ASSERT_TRUE(node->transport->send(peer, make_message(1 << 20, 7)).ok())
        << "over the bound, it goes alone";
  }
  EXPECT_TRUE(listener.handler.wait([](auto& self) { return self.messages() == 2 * (kCount + 1); }));
}

TEST_P(LiveTransport, GivesTheSamePeerForAnAddressThatItIsConnectedTo) {
  Pair pair;
  EXPECT_EQ(pair.connector.transport->connect(pair.listener.address()), pair.to_listener);
  pair.connector.transport->disconnect(pair.to_listener, Status(Code::aborted, "enough"));
  EXPECT_EQ(pair.connector.handler.wait_lost(pair.to_listener).code(), Code::aborted);
  transport::PeerId next = pair.connector.transport->connect(pair.listener.address());
  EXPECT_NE(next, pair.to_listener);
  EXPECT_TRUE(pair.connector.handler.wait_up(next));
}

TEST_P(LiveTransport, KeepsSessionsInBothDirectionsApart) {
  Node a(make_options(true, "a")), b(make_options(true, "b"));
  ASSERT_TRUE(a.start().ok() && b.start().ok());
  transport::PeerId a_to_b = a.transport->connect(b.address());
  transport::PeerId b_to_a = b.transport->connect(a.address());
  ASSERT_TRUE(a.handler.wait_up(a_to_b) && b.handler.wait_up(b_to_a));
  ASSERT_TRUE(a.transport->send(a_to_b, make_message(64, 1)).ok());
  ASSERT_TRUE(a.transport->send(a_to_b, make_message(1 << 20, 2)).ok());
  ASSERT_TRUE(b.transport->send(b_to_a, make_message(64, 3)).ok());
  ASSERT_TRUE(b.handler.wait([](auto& self) { return self.messages() == 2; }));
  ASSERT_TRUE(a.handler.wait([](auto& self) { return self.messages() == 1; }));
  EXPECT_TRUE(b.handler.record(b_to_a).messages.empty());
  EXPECT_TRUE(a.handler.record(a_to_b).messages.empty());
}

TEST_P(LiveTransport, TalksToItself) {
  Node node(make_options(true, "node"));
  ASSERT_TRUE(node.start().ok());
  transport::PeerId there = node.transport->connect(node.address());
  ASSERT_TRUE(node.handler.wait([](auto& self) { return self.ups() == 2; }));
  ASSERT_TRUE(node.transport->send(there, make_message(64, 1)).ok());
  ASSERT_TRUE(node.transport->send(there, make_message(9 << 20, 2)).ok());
  EXPECT_TRUE(node.handler.wait([](auto& self) { return self.messages() == 2; }));
}

TEST_P(LiveTransport, ListensOnAllAddressesAndFindsHostsByName) {
  transport::TransportOptions options = make_options(true, "listener");
  options.listen = "0.0.0.0:0";
  Node listener(std::move(options)), connector(make_options(false, "connector"));
  ASSERT_TRUE(listener.start().ok() && connector.start().ok());
  base::HostPort address = *base::parse_host_port(listener.address());
  transport::PeerId peer = connector.transport->connect("localhost:" + std::to_string(address.port));
  EXPECT_TRUE(connector.handler.wait_up(peer)) << connector.handler.wait_lost(peer).to_string();
}

// Regression: with a name server that does not answer, the system's resolver took longer than a handshake
// may, and no node ever connected.
TEST_P(LiveTransport, GivesAHandshakeItsTimeHoweverLongItTakesToFindTheHost) {
  std::promise<void> found;
  transport::TransportOptions options = make_options(false, "connector");
  options.limits.handshake_timeout_ms = 1500;
  options.find_host = [ready = found.get_future().share()](const std::string&) -> Result<std::string> {
    ready.wait();
    return std::string("127.0.0.1");
  };
  Node listener(make_options(true, "listener")), connector(std::move(options));
  ASSERT_TRUE(listener.start().ok() && connector.start().ok());
  const uint16_t port = base::parse_host_port(listener.address())->port;
  const transport::PeerId peer = connector.transport->connect("slow:" + std::to_string(port));
  auto silent = transport::Listener::listen(*transport::resolve({"127.0.0.1", 0}, true), {});
  ASSERT_TRUE(silent.ok());
  const transport::PeerId later = connector.transport->connect("127.0.0.1:" + std::to_string(silent->port()));
  EXPECT_THAT(connector.handler.wait_lost(later).message(), HasSubstr("no answer within 1500 ms"));
  found.set_value();
  EXPECT_TRUE(connector.handler.wait_up(peer)) << connector.handler.wait_lost(peer).to_string();
}

// Regression: UCX 1.13 wrote past the end of memory when it listened on an IPv6 address.
TEST_P(LiveTransport, RefusesAddressesOfIpv6) {
  transport::TransportOptions options = make_options(true, "listener");
  options.listen = "[::1]:0";
  RecordingHandler handler;
  Status started = transport::make_transport(std::move(options))->start(handler);
  EXPECT_EQ(started.code(), Code::invalid_argument);
  EXPECT_THAT(started.message(), HasSubstr("IPv6"));
  Node connector(make_options(false, "connector"));
  ASSERT_TRUE(connector.start().ok());
  Status why = connector.handler.wait_lost(connector.transport->connect("[::1]:1"));
  EXPECT_EQ(why.code(), Code::invalid_argument);
}

TEST_P(LiveTransport, ServesManyPeersAtOnce) {
  constexpr size_t kPeers = 8, kMessages = 200;
  Node listener(make_options(true, "listener"));
  ASSERT_TRUE(listener.start().ok());
  std::list<Node> nodes;
  for (size_t n = 0; n < kPeers; ++n) {
    Node& node = nodes.emplace_back(make_options(false, "node-" + std::to_string(n)));
    ASSERT_TRUE(node.start().ok());
    transport::PeerId peer = node.transport->connect(listener.address());
    for (size_t i = 0; i < kMessages; ++i) {
      size_t bytes = i % 50 == 49 ? size_t{256} << 10 : 8 * (1 + i);
      ASSERT_TRUE(node.transport->send(peer, make_message(bytes, i)).ok());
    }
  }
  ASSERT_TRUE(listener.handler.wait([](auto& self) { return self.messages() == kPeers * kMessages; }));
  std::vector<transport::PeerId> peers;
  listener.handler.wait([&](auto& self) {
    for (auto& [id, record] : self.records()) peers.push_back(id);
    return true;
  });
  EXPECT_EQ(peers.size(), kPeers);
  for (transport::PeerId peer : peers) {
    auto messages = listener.handler.record(peer).messages;
    ASSERT_EQ(messages.size(), kMessages);
    EXPECT_TRUE(messages[149] == make_message(256 << 10, 149));
    EXPECT_TRUE(messages[150] == make_message(8 * 151, 150));
  }
}

TEST_P(LiveTransport, LetsTheHandlerSendAndConnect) {
  Node target(make_options(true, "target")), listener(make_options(true, "listener"));
  Node connector(make_options(false, "connector"));
  ASSERT_TRUE(target.start().ok());
  std::atomic<transport::PeerId> further = 0;
  connector.handler.react = [&](transport::PeerId peer) {
    EXPECT_TRUE(connector.transport->send(peer, make_message(64, 1)).ok());
    if (further == 0) further = connector.transport->connect(target.address());
  };
  ASSERT_TRUE(listener.start().ok() && connector.start().ok());
  connector.transport->connect(listener.address());
  EXPECT_TRUE(listener.handler.wait([](auto& self) { return self.messages() == 1; }));
  EXPECT_TRUE(target.handler.wait([](auto& self) { return self.messages() == 1; }));
  connector.transport->stop(0);
}

TEST_P(LiveTransport, SendsNothingThatThePeerWouldEndTheSessionFor) {
  Pair pair;
  Bytes unframed(64, std::byte{0xff});
  EXPECT_EQ(pair.connector.transport->send(pair.to_listener, unframed).code(), Code::invalid_argument);
  EXPECT_EQ(pair.connector.transport->send(pair.to_listener, Bytes()).code(), Code::invalid_argument);
  EXPECT_EQ(pair.connector.transport->send(pair.to_listener, Bytes(transport::kMaxMessageBytes + 8)).code(),
            Code::too_large);
  EXPECT_EQ(pair.connector.transport->send(999, make_message(8, 0)).code(), Code::unavailable);
}

TEST_P(LiveTransport, CountsWhatCrossesEachTransport) {
  Pair pair;
  for (uint64_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(pair.connector.transport->send(pair.to_listener, make_message(1000, i)).ok());
  }
  ASSERT_TRUE(
      pair.connector.transport->send(pair.to_listener, make_message(2 * transport::kRendezvousChunkBytes, 1))
          .ok());
  ASSERT_TRUE(pair.listener.handler.wait_messages(pair.to_connector, 11));
  transport::TransportStats sent = pair.connector.transport->stats(),
                            received = pair.listener.transport->stats();
  uint64_t bytes = 10 * 1000 + 2 * transport::kRendezvousChunkBytes;
  EXPECT_EQ(sent.sent_eager.frames, 10u);
  EXPECT_EQ(sent.sent_rendezvous.frames, 2u);
  EXPECT_EQ(sent.sent.bytes, bytes);
  EXPECT_EQ(received.received.frames, 12u);
  EXPECT_EQ(received.received.bytes, bytes);
  for (const transport::TransportStats& stats : {sent, received}) {
    ASSERT_EQ(stats.by_transport.size(), 1u);
    EXPECT_EQ(stats.by_transport.begin()->second.bytes, bytes);
    EXPECT_EQ(stats.by_transport.begin()->first, GetParam() == transport::TransportKind::ucx ? "tcp" : "tls");
    EXPECT_EQ(stats.peers_up, 1u);
    EXPECT_EQ(stats.malformed_frames, 0u);
  }
}

TEST_F(UcxTransport, KeepsToTheNetworkOfTheConnectionUnlessToldOtherwise) {
  auto lanes = [] {
    Pair pair;
    EXPECT_TRUE(pair.connector.transport->send(pair.to_listener, make_message(64, 1)).ok());
    EXPECT_TRUE(pair.listener.handler.wait_messages(pair.to_connector, 1));
    return pair.connector.transport->stats().by_transport.begin()->first;
  };
  EXPECT_EQ(lanes(), "tcp");
  const std::pair<const char*, const char*> outcome[] = {
      {"UCX_TLS", "posix,tcp"}, {"UCX_MM_ERROR_HANDLING", "y"}, {"UCX_CM_USE_ALL_DEVICES", "y"}};
  for (auto [name, value] : outcome) setenv(name, value, 1);
  EXPECT_EQ(lanes(), "posix+tcp");
  for (auto [name, value] : outcome) unsetenv(name);
}

TEST_P(LiveTransport, LeavesSignalsToTheProgram) {
  Pair pair;
  for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGHUP}) {
    struct sigaction action {};
    ASSERT_EQ(sigaction(number, nullptr, &action), 0);
    Dl_info owner{};
    bool is_default = action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN;
    bool is_known = !is_default && dladdr(reinterpret_cast<void*>(action.sa_handler), &owner) != 0;
    std::string library = is_known ? owner.dli_fname : "";
    EXPECT_THAT(library, Not(HasSubstr("libucs"))) << "signal " << number;
  }
}

TEST_P(LiveTransport, StopsAfterSendingWhatIsQueued) {
  Pair pair;
  for (uint64_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(pair.connector.transport->send(pair.to_listener, make_message(8000, i)).ok());
    Bytes next = i % 20 == 0 ? make_message(5 << 20, i) : make_message(16, i);
    ASSERT_TRUE(pair.connector.transport->send(pair.to_listener, next).ok());
  }
  pair.connector.transport->stop(20000);
  EXPECT_TRUE(pair.listener.handler.wait_messages(pair.to_connector, 200));
  Status why = pair.listener.handler.wait_lost(pair.to_connector);
  EXPECT_EQ(why.code(), Code::unavailable);
  EXPECT_THAT(why.message(), HasSubstr("closed by the peer: the node is stopping"));
  EXPECT_TRUE(pair.connector.handler.record(pair.to_listener).lost.empty())
      << "no callback for what stop ends";
  EXPECT_EQ(pair.connector.transport->send(pair.to_listener, make_message(8, 0)).code(), Code::unavailable);
}

TEST_P(LiveTransport, StopsAtOnceWhenNothingIsToBeDrained) {
  auto pair = std::make_unique<Pair>();
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(pair->connector.transport->send(pair->to_listener, make_message(5 << 20, i)).ok());
    ASSERT_TRUE(pair->listener.transport->send(pair->to_connector, make_message(5 << 20, i)).ok());
  }
  auto since = std::chrono::steady_clock::now();
  pair->connector.transport->stop(0);
  EXPECT_LT(std::chrono::steady_clock::now() - since, std::chrono::seconds(2));
  EXPECT_EQ(pair->listener.handler.wait_lost(pair->to_connector).code(), Code::unavailable);
}

TEST_P(LiveTransport, StartsWithoutAnyoneThereAndStops) {
  Node node(make_options(true, "node"));
  EXPECT_EQ(node.transport->listen_address(), "");
  ASSERT_TRUE(node.start().ok());
  EXPECT_THAT(node.address(), StartsWith("127.0.0.1:"));
  node.transport->connect("192.0.2.1:9");  // no host answers there
  node.transport->stop(0);
  node.transport->stop(0);
}

}  // namespace
}  // namespace shoal::testing
