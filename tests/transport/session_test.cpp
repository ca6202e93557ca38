// Two sessions connected to each other, without UCX.
#include "transport/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/live/recording_handler.h"

namespace shoal::transport {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::make_message;
using testing::make_options;

SessionSettings settings_of(const std::string& name) {
  TransportOptions options = make_options(false, name);
  return {options.identity, std::make_shared<const Bytes>(options.token), TransportLimits()};
}

struct Wire {
  Wire()
      : connector(HandshakeRole::connector, settings_of("connector"), {}, "there:1", 0),
        listener(HandshakeRole::listener, settings_of("listener"), {}, "here:2", 0) {}

  // Carries the messages of both sides until neither sends any.
  void exchange(uint64_t now_ms = 0) {
    bool any = true;
    while (any) {
      any = carry(connector, listener, now_ms);
      any |= carry(listener, connector, now_ms);
      if (listener.wants_data_port()) listener.offer_data_port(4711);
      any |= listener.has_handshake_frames();
    }
  }
  static bool carry(Session& from, Session& to, uint64_t now_ms) {
    std::vector<OutgoingFrame> handshake_frames = from.take_handshake_frames();
    for (OutgoingFrame& frame : handshake_frames) to.on_handshake_frame(frame.header, frame.payload, now_ms);
    std::vector<OutgoingFrame> frames = from.take_frames();
    for (OutgoingFrame& frame : frames) to.on_frame(frame.header, frame.payload, now_ms);
    return !handshake_frames.empty() || !frames.empty();
  }

  Session connector, listener;
};

struct UpWire : Wire {
  UpWire() { exchange(); }
};

void expect_ended(const Session& session, Code code, const std::string& words) {
  EXPECT_TRUE(session.has_ended());
  EXPECT_EQ(session.end_reason().code(), code) << session.end_reason().to_string();
  EXPECT_THAT(session.end_reason().message(), HasSubstr(words));
}

TEST(Session, ComesUpOnBothSides) {
  UpWire wire;
  EXPECT_EQ(wire.connector.state(), SessionState::up);
  EXPECT_EQ(wire.listener.state(), SessionState::up);
  EXPECT_EQ(wire.connector.remote(), "listener (there:1)");
  EXPECT_EQ(wire.connector.data_port(), 4711);
  EXPECT_EQ(wire.listener.incoming_tag() & 1, 1u);
}

TEST(Session, CarriesSmallMessagesInOrder) {
  UpWire wire;
  for (uint64_t i = 0; i < 3; ++i) {
    Bytes message = make_message(64, i);
    EXPECT_TRUE(wire.listener.on_frame(wire.connector.seal(64, 0, 64, false), message, 0));
  }
  std::vector<Bytes> messages = wire.listener.take_messages();
  ASSERT_EQ(messages.size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_TRUE(messages[i] == make_message(64, i));
}

TEST(Session, PutsALargeMessageTogetherFromItsChunks) {
  UpWire wire;
  Bytes message = make_message(2 * kRendezvousChunkBytes + 8, 5);
  for (size_t at = 0; at < message.size(); at += kRendezvousChunkBytes) {
    ByteView part = ByteView(message).subspan(at, std::min(kRendezvousChunkBytes, message.size() - at));
    ASSERT_TRUE(wire.listener.on_announced(wire.connector.seal(message.size(), at, part.size(), true),
                                           part.size(), 0));
    MutableByteView room = wire.listener.fetch_buffer(0);
    ASSERT_EQ(room.size(), part.size());
    std::copy(part.begin(), part.end(), room.begin());
    wire.listener.on_fetched(0);
  }
  std::vector<Bytes> messages = wire.listener.take_messages();
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_TRUE(messages[0] == message);
  EXPECT_FALSE(wire.listener.is_receiving());
}

TEST(Session, EndsWithANamedErrorForATruncatedFrame) {
  UpWire wire;
  Bytes message = make_message(64, 1);
  EXPECT_FALSE(wire.listener.on_frame(wire.connector.seal(64, 0, 64, false), ByteView(message).first(40), 0));
  expect_ended(wire.listener, Code::corrupt,
               "connector (here:2): malformed frame: the header announces 64 bytes of payload, but 40");
  EXPECT_EQ(wire.listener.take_malformed_frames(), 1u);
  wire.exchange();
  expect_ended(wire.connector, Code::corrupt, "closed by the peer: malformed frame");
}

TEST(Session, EndsForAnAbsurdSegmentTable) {
  for (uint32_t segments : {0xffffffffu, 512u, 7u}) {
    UpWire wire;
    Bytes message = make_message(64, 1);
    store_le32(message.data(), segments);
    wire.listener.on_frame(wire.connector.seal(64, 0, 64, false), message, 0);
    expect_ended(wire.listener, Code::corrupt, "malformed message");
    EXPECT_TRUE(wire.listener.take_messages().empty());
  }
}

TEST(Session, EndsForAClaimOverTheBoundAndAllocatesNothing) {
  UpWire wire;
  FrameHeaderBytes header = wire.connector.seal(kMaxMessageBytes, 0, kRendezvousChunkBytes, true);
  store_le64(&header[24], uint64_t{1} << 60);
  EXPECT_FALSE(wire.listener.on_announced(header, kRendezvousChunkBytes, 0));
  expect_ended(wire.listener, Code::too_large, "a message of 1152921504606846976 bytes");
}

TEST(Session, EndsForMessagesOutOfOrder) {
  UpWire wire;
  Bytes message = make_message(64, 1);
  wire.connector.seal(64, 0, 64, false);  // lost on the way
  wire.listener.on_frame(wire.connector.seal(64, 0, 64, false), message, 0);
  expect_ended(wire.listener, Code::corrupt, "out of order: message 1 at 0, but message 0 at 0 was expected");
}

TEST(Session, EndsForAMessageBetweenTheChunksOfAnother) {
  UpWire wire;
  FrameHeaderBytes chunk = wire.connector.seal(2 * kRendezvousChunkBytes, 0, kRendezvousChunkBytes, true);
  ASSERT_TRUE(wire.listener.on_announced(chunk, kRendezvousChunkBytes, 0));
  ASSERT_FALSE(wire.listener.fetch_buffer(0).empty());
  wire.listener.on_fetched(0);
  Bytes message = make_message(64, 1);
  wire.listener.on_frame(wire.connector.seal(64, 0, 64, false), message, 0);
  expect_ended(wire.listener, Code::corrupt, "out of order");
}

TEST(Session, EndsForAChunkWhileAnotherIsFetched) {
  UpWire wire;
  FrameHeaderBytes chunk = wire.connector.seal(2 * kRendezvousChunkBytes, 0, kRendezvousChunkBytes, true);
  ASSERT_TRUE(wire.listener.on_announced(chunk, kRendezvousChunkBytes, 0));
  EXPECT_FALSE(wire.listener.on_announced(chunk, kRendezvousChunkBytes, 0));
  EXPECT_EQ(wire.listener.end_reason().code(), Code::corrupt);
}

TEST(Session, IsNotHarmedByWhoeverDoesNotKnowItsTag) {
  UpWire wire;
  Bytes message = make_message(64, 1);
  FrameHeaderBytes forged = wire.connector.seal(64, 0, 64, false);
  FrameHeaderBytes genuine = forged;
  store_le64(&forged[8], 12345);
  EXPECT_FALSE(wire.listener.on_frame(forged, message, 0));
  EXPECT_FALSE(wire.listener.on_frame(ByteView(forged).first(7), message, 0));
  EXPECT_FALSE(wire.listener.on_announced(forged, 64, 0));
  EXPECT_EQ(wire.listener.take_malformed_frames(), 3u);
  EXPECT_TRUE(wire.listener.on_frame(genuine, message, 0));
}

FrameHeader header_of(FrameKind kind, uint32_t bytes) {
  FrameHeader header;
  header.kind = kind;
  header.payload_bytes = bytes;
  bool is_message = kind == FrameKind::message || kind == FrameKind::chunk;
  header.message_bytes = is_message ? bytes : 0;
  return header;
}

TEST(Session, AcceptsOnlyHandshakeFramesBeforeTheHandshakeIsDone) {
  Bytes message = make_message(64, 1);
  for (FrameKind kind : {FrameKind::message, FrameKind::heartbeat, FrameKind::closing, FrameKind::attach}) {
    Wire wire;
    uint32_t bytes = kind == FrameKind::message || kind == FrameKind::closing ? 64 : 0;
    wire.listener.on_handshake_frame(encode_frame_header(header_of(kind, bytes)),
                                     ByteView(message).first(bytes), 0);
    expect_ended(wire.listener, Code::refused, "before the handshake");
    EXPECT_TRUE(wire.listener.take_messages().empty());
    EXPECT_TRUE(wire.listener.has_handshake_frames()) << "the stranger is told";
  }
}

TEST(Session, TakesNothingByUcxFromWhoeverIsNotProven) {
  Wire wire;
  Bytes message = make_message(64, 1);
  EXPECT_FALSE(wire.listener.on_frame(encode_frame_header(header_of(FrameKind::message, 64)), message, 0));
  EXPECT_FALSE(
      wire.listener.on_announced(encode_frame_header(header_of(FrameKind::chunk, 1 << 20)), 1 << 20, 0));
  EXPECT_EQ(wire.listener.state(), SessionState::handshaking);
  EXPECT_EQ(wire.listener.take_malformed_frames(), 2u);
}

TEST(Session, RefusesAStrangerOverTheHandshakesBound) {
  Wire wire;
  wire.listener.on_handshake_frame(
      encode_frame_header(header_of(FrameKind::handshake, kMaxHandshakeBytes + 8)), {}, 0);
  expect_ended(wire.listener, Code::too_large, "handshake");
}

TEST(Session, EndsForASecondAttach) {
  UpWire wire;
  FrameHeader header = header_of(FrameKind::attach, 0);
  header.tag = wire.listener.incoming_tag();
  wire.listener.on_frame(encode_frame_header(header), {}, 0);
  expect_ended(wire.listener, Code::corrupt, "a second attach");
}

TEST(Session, EndsWhenNoDataConnectionComes) {
  Wire wire;
  while (wire.listener.state() == SessionState::handshaking)
    Wire::carry(wire.connector, wire.listener, 0), Wire::carry(wire.listener, wire.connector, 0);
  wire.listener.tick(kHandshakeTimeoutMs);
  expect_ended(wire.listener, Code::unavailable, "no data connection within 5000 ms");
}

TEST(Session, SendsAHeartbeatWhenItHasSentNothingElse) {
  UpWire wire;
  wire.connector.tick(kHeartbeatIntervalMs - 1);
  EXPECT_FALSE(wire.connector.has_frames());
  EXPECT_EQ(wire.connector.next_due_ms(), kHeartbeatIntervalMs);
  wire.connector.tick(kHeartbeatIntervalMs);
  EXPECT_EQ(wire.connector.take_frames().size(), 1u);
  wire.connector.on_sent(2 * kHeartbeatIntervalMs);
  wire.connector.tick(2 * kHeartbeatIntervalMs + 1);
  EXPECT_FALSE(wire.connector.has_frames());
}

TEST(Session, StaysUpWhileHeartbeatsPass) {
  UpWire wire;
  for (uint64_t now = 0; now < 10 * kPeerLostAfterMs; now += kHeartbeatIntervalMs / 2) {
    wire.connector.tick(now);
    wire.listener.tick(now);
    wire.exchange(now);
  }
  EXPECT_EQ(wire.connector.state(), SessionState::up);
  EXPECT_EQ(wire.listener.state(), SessionState::up);
}

TEST(Session, IsLostWhenThePeerIsSilent) {
  UpWire wire;
  wire.listener.tick(kPeerLostAfterMs - 1);
  EXPECT_EQ(wire.listener.state(), SessionState::up);
  wire.listener.tick(kPeerLostAfterMs);
  expect_ended(wire.listener, Code::unavailable, "the peer has sent nothing for 2500 ms");
}

TEST(Session, EndsWhenAMessageStalls) {
  UpWire wire;
  FrameHeaderBytes chunk = wire.connector.seal(2 * kRendezvousChunkBytes, 0, kRendezvousChunkBytes, true);
  ASSERT_TRUE(wire.listener.on_announced(chunk, kRendezvousChunkBytes, 0));
  auto pass_heartbeats = [&](uint64_t from_ms, uint64_t until_ms) {
    for (uint64_t now = from_ms; now < until_ms; now += kHeartbeatIntervalMs) {
      wire.connector.tick(now);
      wire.listener.tick(now);
      wire.exchange(now);
    }
  };
  pass_heartbeats(0, 2 * kMessageStallMs);
  EXPECT_EQ(wire.listener.state(), SessionState::up) << "it waits for its turn";
  ASSERT_FALSE(wire.listener.fetch_buffer(2 * kMessageStallMs).empty());
  pass_heartbeats(2 * kMessageStallMs, 3 * kMessageStallMs);
  EXPECT_EQ(wire.listener.state(), SessionState::up);
  wire.listener.tick(3 * kMessageStallMs);
  expect_ended(wire.listener, Code::unavailable, "a message of 8388608 bytes stalled at byte 0");
}

TEST(Session, EndsWhenTheHandshakeTakesTooLong) {
  Wire wire;
  wire.connector.tick(kHandshakeTimeoutMs);
  expect_ended(wire.connector, Code::unavailable, "there:1: no answer within 5000 ms");
  EXPECT_FALSE(wire.connector.was_refused());
}

TEST(Session, EndsForAnAttachBeforeItsListenerHasWelcomedTheConnector) {
  Wire wire;
  while (!wire.listener.wants_data_port())
    Wire::carry(wire.connector, wire.listener, 0), Wire::carry(wire.listener, wire.connector, 0);
  FrameHeader header = header_of(FrameKind::attach, 0);
  header.tag = wire.listener.incoming_tag();
  wire.listener.on_frame(encode_frame_header(header), {}, 0);
  expect_ended(wire.listener, Code::corrupt, "an attach came before the welcome");
  EXPECT_FALSE(wire.listener.wants_data_port());
}

TEST(Session, TellsThePeerWhyItEnds) {
  UpWire wire;
  wire.listener.end(Status(Code::aborted, "it sent what it must not"));
  EXPECT_FALSE(wire.listener.was_refused());
  wire.exchange();
  expect_ended(wire.connector, Code::aborted, "closed by the peer: it sent what it must not");
}

TEST(Session, RefusesAndIsToldWhy) {
  SessionSettings other = settings_of("connector");
  other.self.job_id = "job-2";
  Wire wire;
  wire.connector = Session(HandshakeRole::connector, other, {}, "there:1", 0);
  wire.exchange();
  expect_ended(wire.connector, Code::refused, "there:1: the handshake was rejected: the jobs differ");
  EXPECT_TRUE(wire.connector.was_refused());
  EXPECT_TRUE(wire.listener.was_refused());
  EXPECT_FALSE(wire.listener.was_up());
}

}  // namespace
}  // namespace shoal::transport
