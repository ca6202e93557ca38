// Strangers and misbehaving members of the job send to a live transport. Their own session ends with an error
// that names the cause, and a good peer beside them is not affected.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <list>
#include <random>
#include <set>
#include <sstream>

#include "base/host_port.h"
#include "tests/transport/live/raw_client.h"
#include "tests/transport/live/recording_handler.h"
#include "transport/handshake_codec.h"
#include "transport/tcp/resolver.h"
#include "transport/tcp/socket.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;

class Hostile : public OfEachTransport {
 protected:
  explicit Hostile(const transport::TransportLimits& limits = {})
      : listener_(with(limits)), good_(make_options(false, "good")) {
    EXPECT_TRUE(listener_.start().ok() && good_.start().ok());
    to_listener_ = good_.transport->connect(listener_.address());
    EXPECT_TRUE(good_.handler.wait_up(to_listener_));
    good_at_listener_ = listener_.handler.wait_nth_up(1);
  }

  static transport::TransportOptions with(const transport::TransportLimits& limits) {
    transport::TransportOptions options = make_options(true, "listener");
    options.limits = limits;
    return options;
  }

  // Whatever happened, the good peer's messages still arrive, both ways.
  void expect_good_peer_unharmed() {
    size_t there = listener_.handler.record(good_at_listener_).messages.size();
    size_t here = good_.handler.record(to_listener_).messages.size();
    ASSERT_TRUE(good_.transport->send(to_listener_, make_message(64, 1)).ok());
    ASSERT_TRUE(good_.transport->send(to_listener_, make_message(1 << 20, 2)).ok());
    ASSERT_TRUE(listener_.transport->send(good_at_listener_, make_message(64, 3)).ok());
    EXPECT_TRUE(listener_.handler.wait_messages(good_at_listener_, there + 2));
    EXPECT_TRUE(good_.handler.wait_messages(to_listener_, here + 1));
    EXPECT_TRUE(listener_.handler.record(good_at_listener_).lost.empty());
  }

  // A member of the job, by its proof, with a session of its own.
  transport::PeerId let_in(RawClient& client) {
    EXPECT_TRUE(client.attach(client.prove_itself(make_options(false, "mad"))));
    transport::PeerId peer = listener_.handler.wait_nth_up(2);
    EXPECT_NE(peer, good_at_listener_);
    return peer;
  }

  transport::FrameHeader header_of(const RawClient& client, transport::FrameKind kind, uint32_t bytes) {
    transport::FrameHeader header;
    header.kind = kind;
    header.tag = client.tag();
    header.payload_bytes = bytes;
    header.message_bytes = bytes;
    return header;
  }

  void expect_ends(const std::function<void(RawClient&)>& attack, Code code, const std::string& words) {
    RawClient client(listener_.address());
    transport::PeerId peer = let_in(client);
    attack(client);
    EXPECT_TRUE(client.drive([&] { return !listener_.handler.record(peer).lost.empty(); }));
    Status why = listener_.handler.wait_lost(peer);
    EXPECT_EQ(why.code(), code) << why.to_string();
    EXPECT_THAT(why.message(), HasSubstr(words));
    EXPECT_TRUE(client.wait_closed());
    EXPECT_EQ(client.refusal().code(), code) << "the peer is told";
    EXPECT_EQ(listener_.handler.record(peer).lost.size(), 1u);
    expect_good_peer_unharmed();
  }

  // One who knows the token, and does not keep to the handshake.
  void expect_is_turned_away(const std::function<void(RawClient&)>& attack, Code code) {
    RawClient client(listener_.address());
    EXPECT_TRUE(client.begin_tls(make_options(false, "mad")));
    attack(client);
    EXPECT_TRUE(client.wait_closed());
    EXPECT_EQ(client.refusal().code(), code) << client.refusal().to_string();
    EXPECT_EQ(listener_.transport->stats().peers_up, 1u);
    expect_good_peer_unharmed();
  }

  // A stranger hears nothing but TLS's alert, if that.
  void expect_stranger_learns_nothing(const std::function<void(RawClient&)>& attack) {
    constexpr size_t kAlertBytes = 7;
    RawClient client(listener_.address());
    attack(client);
    EXPECT_TRUE(client.wait_closed());
    EXPECT_LE(client.plain_received.size(), kAlertBytes);
    EXPECT_TRUE(client.received.empty());
    EXPECT_EQ(listener_.transport->stats().peers_up, 1u);
    expect_good_peer_unharmed();
  }
  bool by_ucx() const { return GetParam() == transport::TransportKind::ucx; }

  Node listener_, good_;
  transport::PeerId to_listener_ = 0, good_at_listener_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Of, Hostile, kEachTransport(), kNameOfTransport);

TEST_P(Hostile, FrameThatIsCutEndsItsSession) {
  if (!by_ucx()) GTEST_SKIP() << "the rest of a frame may come later in a stream";
  expect_ends(
      [&](RawClient& client) {
        client.send(header_of(client, transport::FrameKind::message, 64),
                    ByteView(make_message(64, 1)).first(24));
      },
      Code::corrupt, "the header announces 64 bytes of payload, but 24 came");
}

TEST_P(Hostile, AbsurdSegmentTableEndsItsSession) {
  expect_ends(
      [&](RawClient& client) {
        Bytes message = make_message(64, 1);
        store_le32(message.data(), 0xffffffff);
        client.send(header_of(client, transport::FrameKind::message, 64), message);
      },
      Code::corrupt, "4294967296 segments are announced");
}

TEST_P(Hostile, EagerMessageOverTheBoundEndsItsSession) {
  expect_ends(
      [&](RawClient& client) {
        client.send(header_of(client, transport::FrameKind::message, 1 << 20), make_message(1 << 20, 1));
      },
      Code::too_large, "an eager message of 1048576 bytes");
}

TEST_P(Hostile, ClaimOfAnExbibyteEndsItsSession) {
  expect_ends(
      [&](RawClient& client) {
        transport::FrameHeader header =
            header_of(client, transport::FrameKind::chunk, transport::kRendezvousChunkBytes);
        header.message_bytes = uint64_t{1} << 60;
        client.announce(header, uint64_t{1} << 60);
      },
      Code::too_large, "a message of 1152921504606846976 bytes");
}

TEST_P(Hostile, RendezvousLongerThanItsHeaderSaysEndsItsSession) {
  if (!by_ucx()) GTEST_SKIP() << "in a stream the header alone says how long it is";
  expect_ends(
      [&](RawClient& client) {
        client.announce(header_of(client, transport::FrameKind::chunk, 1 << 20), 1 << 21);
      },
      Code::corrupt, "the header announces 1048576 bytes of payload, but 2097152 came");
}

TEST_P(Hostile, FrameWithoutTheTagIsDropped) {
  RawClient client(listener_.address());
  transport::PeerId peer = let_in(client);
  transport::FrameHeader forged = header_of(client, transport::FrameKind::message, 64);
  forged.tag ^= 2;
  client.send(forged, make_message(64, 8));
  if (by_ucx()) client.send(ByteView(transport::encode_frame_header(forged)).first(5), {});
  client.send(header_of(client, transport::FrameKind::message, 64), make_message(64, 9));
  EXPECT_TRUE(client.drive([&] { return !listener_.handler.record(peer).messages.empty(); }));
  EXPECT_TRUE(listener_.handler.record(peer).messages[0] == make_message(64, 9));
  EXPECT_EQ(listener_.transport->stats().malformed_frames, by_ucx() ? 2u : 1u);
  expect_good_peer_unharmed();
}

TEST_P(Hostile, ConnectionThatNobodyProvesBelongsToNobody) {
  if (!by_ucx()) GTEST_SKIP() << "there is no second connection";
  RawClient client(listener_.address()), thief(listener_.address());
  std::optional<uint16_t> port = client.prove_itself(make_options(false, "mad"));
  ASSERT_TRUE(port && *port != 0);
  thief.connect_data(*port);
  transport::FrameHeader attach;
  attach.kind = transport::FrameKind::attach;
  attach.tag = 12345;
  thief.send(attach, {});
  thief.send(header_of(thief, transport::FrameKind::message, 64), make_message(64, 1));
  thief.announce(header_of(thief, transport::FrameKind::chunk, 1 << 20), 1 << 20);
  EXPECT_TRUE(thief.drive([&] { return listener_.transport->stats().malformed_frames == 3; }));
  EXPECT_TRUE(client.attach(port)) << "the thief has not taken its place";
  expect_good_peer_unharmed();
}

TEST_P(Hostile, StrangersGarbageIsTurnedAway) {
  expect_stranger_learns_nothing([](RawClient& client) {
    client.send_plain(as_view("GET / HTTP/1.1\r\nHost: a.b.c.d.example\r\n\r\n"));
  });
}

// Regression: the listener told whoever said hello the job's id, the root's and the generation.
TEST_P(Hostile, StrangersHelloIsToldNothing) {
  Bytes hello =
      transport::encode_hello(make_options(false, "new").identity, 1, transport::random_handshake_nonce());
  transport::FrameHeader header;
  header.kind = transport::FrameKind::handshake;
  header.payload_bytes = static_cast<uint32_t>(hello.size());
  expect_stranger_learns_nothing([&](RawClient& client) {
    client.send_plain(transport::encode_frame_header(header));
    client.send_plain(hello);
  });
}

TEST_P(Hostile, StrangerWithAnotherTokenIsToldNothing) {
  transport::TransportOptions options = make_options(false, "stranger");
  options.token.back() ^= std::byte{1};
  expect_stranger_learns_nothing([&](RawClient& client) { EXPECT_FALSE(client.begin_tls(options)); });
  options = make_options(false, "stranger");
  options.identity.root_id = {};
  expect_stranger_learns_nothing([&](RawClient& client) { EXPECT_FALSE(client.begin_tls(options)); });
}

TEST_P(Hostile, StrangersRecordsOfTlsAreTurnedAway) {
  Bytes giant(5, std::byte{0xff});  // a record of a handshake, of 65535 bytes
  giant[0] = std::byte{0x16}, giant[1] = giant[2] = std::byte{3};
  giant.resize(70000);
  expect_stranger_learns_nothing([&](RawClient& client) { client.send_plain(giant); });
  Bytes empty = {std::byte{0x16}, std::byte{3}, std::byte{1}, std::byte{0}, std::byte{0}};
  expect_stranger_learns_nothing([&](RawClient& client) {
    for (int i = 0; i < 1000 && !client.is_closed(); ++i) client.send_plain(empty);
  });
}

// What a node sends first, as somebody who listens in the network would have it.
Bytes first_bytes_of_a_node() {
  auto here = transport::resolve(base::HostPort{"127.0.0.1", 0}, true);
  auto listener = transport::Listener::listen(*here, {});
  Node node(make_options(false, "node"));
  EXPECT_TRUE(node.start().ok());
  node.transport->connect(base::to_string(base::HostPort{"127.0.0.1", listener->port()}));
  Result<transport::Listener::Visitor> visitor = listener->accept();
  while (!visitor.ok()) visitor = listener->accept();
  Bytes out(4096);
  ssize_t got = -1;
  while (got < 0) got = ::recv(visitor->socket.get(), out.data(), out.size(), 0);
  out.resize(static_cast<size_t>(got));
  return out;
}

TEST_P(Hostile, FirstBytesOfANodeSentAgainProveNothing) {
  const Bytes hello = first_bytes_of_a_node();
  ASSERT_GT(hello.size(), 100u);
  std::list<RawClient> clients;
  for (int i = 0; i < 20; ++i) clients.emplace_back(listener_.address()).send_plain(hello);
  for (RawClient& client : clients) EXPECT_TRUE(client.wait_closed()) << "it is given a short time";
  EXPECT_EQ(listener_.transport->stats().peers_up, 1u);
  expect_good_peer_unharmed();
}

TEST_P(Hostile, MessageInPlaceOfAHandshakeIsTurnedAway) {
  expect_is_turned_away(
      [&](RawClient& client) {
        client.send_to_listener(header_of(client, transport::FrameKind::message, 64), make_message(64, 1));
      },
      Code::refused);
}

TEST_P(Hostile, ChunkInPlaceOfAHandshakeIsTurnedAway) {
  expect_is_turned_away(
      [&](RawClient& client) {
        client.send_to_listener(header_of(client, transport::FrameKind::chunk, 1 << 20), {});
      },
      Code::refused);
}

TEST_P(Hostile, LongHandshakeIsTurnedAway) {
  expect_is_turned_away(
      [&](RawClient& client) {
        transport::FrameHeader header;
        header.kind = transport::FrameKind::handshake;
        header.payload_bytes = 100000;
        client.send_to_listener(header, Bytes(100000));
      },
      Code::too_large);
}

TEST_P(Hostile, OneWithANewerSchemaHearsBothVersions) {
  RawClient client(listener_.address());
  ASSERT_TRUE(client.begin_tls(make_options(false, "new")));
  Bytes hello =
      transport::encode_hello(make_options(false, "new").identity, 2, transport::random_handshake_nonce());
  transport::FrameHeader header;
  header.kind = transport::FrameKind::handshake;
  header.payload_bytes = static_cast<uint32_t>(hello.size());
  client.send_to_listener(header, hello);
  EXPECT_TRUE(client.wait_closed());
  EXPECT_EQ(client.refusal(),
            Status(Code::version, "the peer speaks version 2 of the schema, but this node speaks version 1"));
  EXPECT_EQ(listener_.transport->stats().handshakes_rejected, 1u);
  expect_good_peer_unharmed();
}

// "HEX_ADDRESS:HEX_PORT" that this process listens on, UCX's own included.
std::set<std::string> listening_places() {
  std::set<std::string> own_inodes;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    std::string target = std::filesystem::read_symlink(each, ignored);
    if (target.rfind("socket:[", 0) == 0) own_inodes.insert(target.substr(8, target.size() - 9));
  }
  std::set<std::string> places;
  std::ifstream table("/proc/self/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retransmits, user, timeout, inode;
    fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
    if (state != "0A" || own_inodes.count(inode) == 0) continue;
    places.insert(local);
  }
  return places;
}

std::set<uint16_t> listening_ports() {
  std::set<uint16_t> ports;
  for (const std::string& place : listening_places()) {
    ports.insert(static_cast<uint16_t>(std::stoul(place.substr(place.find(':') + 1), nullptr, 16)));
  }
  return ports;
}

// Regression: UCX listened on every interface, of a node on the loopback, too.
TEST_P(Hostile, NothingBeyondTheLoopbackIsOpenForANodeOnTheLoopback) {
  for (const std::string& place : listening_places()) EXPECT_THAT(place, ::testing::StartsWith("0100007F:"));
  if (!by_ucx()) {
    EXPECT_EQ(listening_places().size(), 1u);
  }
}

// A listener of UCX at any address, and one who has proven itself there and has not connected its data.
class UcxDataPort : public ::testing::Test {
 protected:
  UcxDataPort() {
    transport::TransportOptions options = make_options(true, "listener");
    options.listen = "0.0.0.0:0";
    options.network = {transport::TransportKind::ucx, "", {20'000, 29'999}};
    options.limits.unproven_sessions = 2;
    listener_.emplace(std::move(options));
    EXPECT_TRUE(listener_->start().ok());
    listening_port_ = base::parse_host_port(listener_->address())->port;
    first_.emplace(at("127.0.0.1"));
    expected_ = prove(*first_);
  }
  std::string at(const std::string& host) const { return host + ":" + std::to_string(listening_port_); }
  static uint16_t prove(RawClient& client) {
    const std::optional<uint16_t> port = client.prove_itself(make_options(false, "node"));
    EXPECT_TRUE(port.has_value());
    return port.value_or(0);
  }

  std::optional<Node> listener_;
  uint16_t listening_port_ = 0, expected_ = 0;
  std::list<RawClient> strangers_;
  std::optional<RawClient> first_;
};

// Regression: it was on every interface where the listener was.
TEST_F(UcxDataPort, IsAtTheAddressOfItsSessionAndAllPortsAreWithinTheRange) {
  ASSERT_NE(expected_, 0);
  EXPECT_EQ(listening_ports().count(expected_), 1u);
  for (const std::string& place : listening_places()) {
    const unsigned long port = std::stoul(place.substr(place.find(':') + 1), nullptr, 16);
    EXPECT_GE(port, 20'000u);
    EXPECT_LE(port, 29'999u);
    if (port != listening_port_) {
      EXPECT_THAT(place, ::testing::StartsWith("0100007F:"));
    }
  }
  EXPECT_TRUE(first_->attach(expected_));
}

// UCX itself connects to addresses of interfaces alone, and 127.0.0.2 is none: the second one does not
// attach.
TEST_F(UcxDataPort, IsAtTheDoorsAddressOnceSessionsCameByDifferentOnes) {
  RawClient second(at("127.0.0.2"));
  EXPECT_EQ(prove(second), expected_) << "those who are expected know it";
  EXPECT_EQ(listening_places().count(fmt::format("00000000:{:04X}", expected_)), 1u);
  EXPECT_TRUE(first_->attach(expected_));
}

// Regression: as many connections as it keeps kept out the one that was expected.
TEST_F(UcxDataPort, ClosesTheOldestStrangerForWhoeverComesNext) {
  for (int i = 0; i < 6; ++i) {
    RawClient& stranger = strangers_.emplace_back(at("127.0.0.1"));
    stranger.connect_data(expected_);
    int turns = 0;
    EXPECT_TRUE(stranger.drive([&] { return ++turns > 100; }));
  }
  EXPECT_TRUE(first_->attach(expected_));
}

// UCX's own: its magic number, then what it takes for the header of a message. Regression: it aborted the
// node.
Bytes words_of_ucx() {
  Bytes out(72, std::byte{0xff});
  store_le64(out.data(), 0xCAFEBABE12345678);
  return out;
}

// UCX 1.13's own listener ends the process when it is sent zeros.
TEST_P(Hostile, GarbageOnAnyPortHarmsNobody) {
  std::set<uint16_t> ports = listening_ports();
  EXPECT_EQ(ports.count(base::parse_host_port(listener_.address())->port), 1u);
  std::vector<Bytes> garbage = {Bytes(100), Bytes(100, std::byte{0xff}), Bytes(70000, std::byte{0xff}),
                                Bytes(7)};
  if (!by_ucx()) garbage.push_back(words_of_ucx());
  std::mt19937_64 random(3);
  for (int i = 0; i < 8; ++i) {
    Bytes& bytes = garbage.emplace_back(1 + random() % 500);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    store_le32(bytes.data(), i);
  }
  for (uint16_t port : ports) {
    auto address = transport::resolve(base::HostPort{"127.0.0.1", port}, true);
    for (const Bytes& bytes : garbage) {
      int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (connect(fd, address->get(), address->bytes) == 0) {
        EXPECT_GT(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
      }
      close(fd);
    }
    expect_good_peer_unharmed();
  }
}

class HostileWithSmallLimits : public Hostile {
 protected:
  static transport::TransportLimits small() {
    transport::TransportLimits limits;
    limits.handshake_timeout_ms = 300;
    limits.unproven_sessions = 2;
    limits.unproven_life_max_ms = 300;
    limits.offered_life_min_ms = 100;
    return limits;
  }
  HostileWithSmallLimits() : Hostile(small()) {}
};

INSTANTIATE_TEST_SUITE_P(Of, HostileWithSmallLimits, kEachTransport(), kNameOfTransport);

TEST_P(HostileWithSmallLimits, StrangerWhoSaysNothingIsDisconnected) {
  RawClient client(listener_.address());
  EXPECT_TRUE(client.wait_closed());
  EXPECT_TRUE(client.plain_received.empty());
  expect_good_peer_unharmed();
}

TEST_P(HostileWithSmallLimits, StrangerWhoSaysAByteAtATimeIsDisconnected) {
  RawClient client(listener_.address());
  const Bytes hello = first_bytes_of_a_node();
  size_t sent = 0;
  EXPECT_TRUE(client.drive([&] {
    if (sent + 1 < hello.size()) client.send_plain(ByteView(hello).subspan(sent++, 1));
    return client.is_closed();
  }));
  expect_good_peer_unharmed();
}

TEST_P(HostileWithSmallLimits, OneWhoIsProvenAndNeverAttachesIsDisconnected) {
  RawClient client(listener_.address());
  EXPECT_TRUE(client.prove_itself(make_options(false, "mad")));
  EXPECT_TRUE(client.wait_closed());
  EXPECT_EQ(client.refusal().code(), Code::unavailable);
  expect_good_peer_unharmed();
}

TEST_P(HostileWithSmallLimits, OneWhoKnowsTheTokenGetsInBesideMoreStrangersThanAreKept) {
  std::list<RawClient> clients;
  for (int i = 0; i < 5; ++i) clients.emplace_back(listener_.address());
  Node late(make_options(false, "late"));
  ASSERT_TRUE(late.start().ok());
  transport::PeerId peer = late.transport->connect(listener_.address());
  EXPECT_TRUE(late.handler.wait_up(peer)) << late.handler.wait_lost(peer).to_string();
  for (RawClient& client : clients) EXPECT_TRUE(client.wait_closed());
  expect_good_peer_unharmed();
}

}  // namespace
}  // namespace shoal::testing
