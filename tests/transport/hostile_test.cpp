// Strangers, and members of the job that have gone mad, against a live transport: what they send ends their
// own session with a named error, and a good peer beside them notices nothing.
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

#include "tests/transport/raw_client.h"
#include "tests/transport/recording_handler.h"
#include "transport/handshake_codec_internal.h"
#include "transport/ucx/resolver_internal.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;

class Hostile : public ::testing::Test {
 protected:
  explicit Hostile(const TransportLimits& limits = {})
      : listener_(with(limits)), good_(make_options(false, "good")) {
    EXPECT_TRUE(listener_.start().ok() && good_.start().ok());
    to_listener_ = good_.transport->connect(listener_.address());
    EXPECT_TRUE(good_.handler.wait_up(to_listener_));
    good_at_listener_ = listener_.handler.wait_nth_up(1);
  }

  static UcxTransportOptions with(const TransportLimits& limits) {
    UcxTransportOptions options = make_options(true, "listener");
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
  PeerId let_in(RawClient& client) {
    EXPECT_TRUE(client.attach(client.prove_itself(make_options(false, "mad"))));
    PeerId peer = listener_.handler.wait_nth_up(2);
    EXPECT_NE(peer, good_at_listener_);
    return peer;
  }

  FrameHeader header_of(const RawClient& client, FrameKind kind, uint32_t bytes) {
    FrameHeader header;
    header.kind = kind;
    header.tag = client.tag();
    header.payload_bytes = bytes;
    header.message_bytes = bytes;
    return header;
  }

  void expect_ends(const std::function<void(RawClient&)>& attack, Code code, const std::string& words) {
    RawClient client(listener_.address());
    PeerId peer = let_in(client);
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

  void expect_stranger_is_turned_away(const std::function<void(RawClient&)>& attack, Code code) {
    RawClient client(listener_.address());
    attack(client);
    EXPECT_TRUE(client.wait_closed());
    EXPECT_EQ(client.refusal().code(), code) << client.refusal().to_string();
    EXPECT_EQ(listener_.transport->stats().peers_up, 1u);
    expect_good_peer_unharmed();
  }

  Node listener_, good_;
  PeerId to_listener_ = 0, good_at_listener_ = 0;
};

TEST_F(Hostile, FrameThatIsCutEndsItsSession) {
  expect_ends(
      [&](RawClient& client) {
        client.send(header_of(client, FrameKind::message, 64), ByteView(make_message(64, 1)).first(24));
      },
      Code::corrupt, "64 bytes of payload claimed, 24 are there");
}

TEST_F(Hostile, AbsurdSegmentTableEndsItsSession) {
  expect_ends(
      [&](RawClient& client) {
        Bytes message = make_message(64, 1);
        store_le32(message.data(), 0xffffffff);
        client.send(header_of(client, FrameKind::message, 64), message);
      },
      Code::corrupt, "4294967296 segments claimed");
}

TEST_F(Hostile, EagerMessageOverTheBoundEndsItsSession) {
  expect_ends(
      [&](RawClient& client) {
        client.send(header_of(client, FrameKind::message, 1 << 20), make_message(1 << 20, 1));
      },
      Code::too_large, "an eager message of 1048576 bytes");
}

TEST_F(Hostile, ClaimOfAnExbibyteEndsItsSession) {
  expect_ends(
      [&](RawClient& client) {
        FrameHeader header = header_of(client, FrameKind::chunk, kRendezvousChunkBytes);
        header.message_bytes = uint64_t{1} << 60;
        client.announce(header, uint64_t{1} << 60);
      },
      Code::too_large, "a message of 1152921504606846976 bytes");
}

TEST_F(Hostile, RendezvousLongerThanItsHeaderSaysEndsItsSession) {
  expect_ends(
      [&](RawClient& client) { client.announce(header_of(client, FrameKind::chunk, 1 << 20), 1 << 21); },
      Code::corrupt, "1048576 bytes of payload claimed, 2097152 are there");
}

TEST_F(Hostile, FrameWithoutTheTagIsDropped) {
  RawClient client(listener_.address());
  PeerId peer = let_in(client);
  FrameHeader forged = header_of(client, FrameKind::message, 64);
  forged.tag ^= 2;
  client.send(forged, make_message(64, 8));
  client.send(ByteView(encode_frame_header(forged)).first(5), {});
  client.send(header_of(client, FrameKind::message, 64), make_message(64, 9));
  EXPECT_TRUE(client.drive([&] { return !listener_.handler.record(peer).messages.empty(); }));
  EXPECT_TRUE(listener_.handler.record(peer).messages[0] == make_message(64, 9));
  EXPECT_EQ(listener_.transport->stats().malformed_frames, 2u);
  expect_good_peer_unharmed();
}

TEST_F(Hostile, ConnectionThatNobodyProvesBelongsToNobody) {
  RawClient client(listener_.address()), thief(listener_.address());
  uint16_t port = client.prove_itself(make_options(false, "mad"));
  ASSERT_NE(port, 0);
  thief.connect_data(port);
  FrameHeader attach;
  attach.kind = FrameKind::attach;
  attach.tag = 12345;
  thief.send(attach, {});
  thief.send(header_of(thief, FrameKind::message, 64), make_message(64, 1));
  thief.announce(header_of(thief, FrameKind::chunk, 1 << 20), 1 << 20);
  EXPECT_TRUE(thief.drive([&] { return listener_.transport->stats().malformed_frames == 3; }));
  EXPECT_TRUE(client.attach(port)) << "the thief has not taken its place";
  expect_good_peer_unharmed();
}

TEST_F(Hostile, StrangersGarbageIsTurnedAway) {
  expect_stranger_is_turned_away(
      [](RawClient& client) {
        client.send_to_door(as_view("GET / HTTP/1.1\r\nHost: a.b.c.d.example\r\n\r\n"));
      },
      Code::corrupt);
}

TEST_F(Hostile, StrangersMessageIsTurnedAway) {
  expect_stranger_is_turned_away(
      [&](RawClient& client) {
        client.send_to_door(header_of(client, FrameKind::message, 64), make_message(64, 1));
      },
      Code::refused);
}

TEST_F(Hostile, StrangersLongHandshakeIsTurnedAway) {
  expect_stranger_is_turned_away(
      [&](RawClient& client) {
        FrameHeader header;
        header.kind = FrameKind::handshake;
        header.payload_bytes = 100000;
        client.send_to_door(header, Bytes(100000));
      },
      Code::too_large);
}

TEST_F(Hostile, StrangerWithANewerSchemaHearsBothVersions) {
  RawClient client(listener_.address());
  Bytes hello = encode_hello(make_options(false, "new").identity, 2, random_handshake_nonce());
  FrameHeader header;
  header.kind = FrameKind::handshake;
  header.payload_bytes = static_cast<uint32_t>(hello.size());
  client.send_to_door(header, hello);
  EXPECT_TRUE(client.wait_closed());
  EXPECT_EQ(client.refusal(),
            Status(Code::version, "schema version 2 was offered, this side speaks version 1"));
  EXPECT_EQ(listener_.transport->stats().handshakes_refused, 1u);
  expect_good_peer_unharmed();
}

// Ports that this process listens on: the door, and what UCX listens on for itself.
std::set<uint16_t> listening_ports() {
  std::set<std::string> own_inodes;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    std::string target = std::filesystem::read_symlink(each, ignored);
    if (target.rfind("socket:[", 0) == 0) own_inodes.insert(target.substr(8, target.size() - 9));
  }
  std::set<uint16_t> ports;
  std::ifstream table("/proc/self/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retransmits, user, timeout, inode;
    fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
    if (state != "0A" || own_inodes.count(inode) == 0) continue;
    ports.insert(static_cast<uint16_t>(std::stoul(local.substr(local.find(':') + 1), nullptr, 16)));
  }
  return ports;
}

// UCX 1.13's own listener ends the process when it is sent zeros.
TEST_F(Hostile, GarbageOnAnyPortHarmsNobody) {
  std::set<uint16_t> ports = listening_ports();
  EXPECT_EQ(ports.count(parse_host_port(listener_.address())->port), 1u);
  std::vector<Bytes> garbage = {Bytes(100), Bytes(100, std::byte{0xff}), Bytes(70000, std::byte{0xff}),
                                Bytes(7)};
  std::mt19937_64 random(3);
  for (int i = 0; i < 8; ++i) {
    Bytes& bytes = garbage.emplace_back(1 + random() % 500);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    store_le32(bytes.data(), i);
  }
  for (uint16_t port : ports) {
    auto address = resolve(HostPort{"127.0.0.1", port}, true);
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
  static TransportLimits small() {
    TransportLimits limits;
    limits.handshake_timeout_ms = 300;
    limits.unproven_sessions = 2;
    return limits;
  }
  HostileWithSmallLimits() : Hostile(small()) {}
};

TEST_F(HostileWithSmallLimits, StrangerWhoSaysNothingIsShownTheDoor) {
  RawClient client(listener_.address());
  EXPECT_TRUE(client.wait_closed());
  EXPECT_EQ(client.refusal().code(), Code::unavailable);
  expect_good_peer_unharmed();
}

TEST_F(HostileWithSmallLimits, StrangerWhoIsProvenAndNeverAttachesIsShownTheDoor) {
  RawClient client(listener_.address());
  EXPECT_NE(client.prove_itself(make_options(false, "mad")), 0);
  EXPECT_TRUE(client.wait_closed());
  EXPECT_EQ(client.refusal().code(), Code::unavailable);
  expect_good_peer_unharmed();
}

TEST_F(HostileWithSmallLimits, StrangersAreLetInAFewAtATimeAndAGoodPeerHasItsTurn) {
  std::list<RawClient> clients;
  for (int i = 0; i < 5; ++i) clients.emplace_back(listener_.address());
  Node late(make_options(false, "late"));
  ASSERT_TRUE(late.start().ok());
  PeerId peer = late.transport->connect(listener_.address());
  for (RawClient& client : clients) EXPECT_TRUE(client.wait_closed());
  EXPECT_TRUE(late.handler.wait_up(peer));
  expect_good_peer_unharmed();
}

}  // namespace
}  // namespace shoal::testing
