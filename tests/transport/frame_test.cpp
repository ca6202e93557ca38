#include "transport/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "transport/inbound_turns.h"
#include "transport/lived_clock.h"
#include "transport/transport.h"

namespace shoal::transport {
namespace {

using ::testing::HasSubstr;

FrameHeader message_header(uint32_t bytes) {
  FrameHeader header;
  header.kind = FrameKind::message;
  header.payload_bytes = bytes;
  header.message_bytes = bytes;
  header.tag = 77;
  return header;
}

FrameHeader chunk_header(uint64_t message_bytes, uint32_t offset, uint32_t bytes) {
  FrameHeader header = message_header(bytes);
  header.kind = FrameKind::chunk;
  header.message_bytes = message_bytes;
  header.offset = offset;
  return header;
}

TEST(Frame, HeaderComesBackAsItWas) {
  FrameHeader header = chunk_header(kMaxMessageBytes, 3 * kRendezvousChunkBytes, kRendezvousChunkBytes);
  header.sequence = 0x0123456789abcdef;
  header.tag = 0xfedcba9876543210;
  auto decoded = decode_frame_header(encode_frame_header(header));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(*decoded, header);
}

TEST(Frame, HeaderHasTheBytesThatTheDocumentationGives) {
  FrameHeader header = chunk_header(0x04030201, 0x08070605, 0x0c0b0a09);
  header.tag = 0x11;
  header.sequence = 0x22;
  EXPECT_EQ(hex_encode(encode_frame_header(header)),
            "53484c46"
            "01"
            "05"
            "0000"
            "1100000000000000"
            "2200000000000000"
            "0102030400000000"
            "05060708"
            "090a0b0c");
}

TEST(Frame, HeaderOfAnyOtherLengthIsMalformed) {
  FrameHeaderBytes bytes = encode_frame_header(message_header(8));
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(decode_frame_header(ByteView(bytes).first(length)).status().code(), Code::corrupt) << length;
  }
  Bytes longer(bytes.begin(), bytes.end());
  longer.push_back(std::byte{0});
  EXPECT_EQ(decode_frame_header(longer).status().code(), Code::corrupt);
}

TEST(Frame, AnotherVersionIsNamed) {
  FrameHeaderBytes bytes = encode_frame_header(message_header(8));
  bytes[4] = std::byte{9};
  Status status = decode_frame_header(bytes).status();
  EXPECT_EQ(status.code(), Code::version);
  EXPECT_THAT(status.message(), HasSubstr("version 9"));
  EXPECT_THAT(status.message(), HasSubstr("version 1"));
}

TEST(Frame, UnknownKindsAndReservedBytesAreMalformed) {
  for (size_t at : {0u, 5u, 6u, 7u}) {
    FrameHeaderBytes bytes = encode_frame_header(message_header(8));
    bytes[at] = std::byte{200};
    EXPECT_EQ(decode_frame_header(bytes).status().code(), Code::corrupt) << at;
  }
}

TEST(Frame, RandomBytesNeverPassForAHeader) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    Bytes bytes(random() % 64);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    EXPECT_FALSE(decode_frame_header(bytes).ok());
  }
}

TEST(Frame, PayloadThatIsNotAsLongAsClaimedIsMalformed) {
  EXPECT_TRUE(check_frame(message_header(64), 64, false).ok());
  EXPECT_EQ(check_frame(message_header(64), 56, false).code(), Code::corrupt);
  EXPECT_EQ(check_frame(message_header(64), 72, false).code(), Code::corrupt);
}

TEST(Frame, MessageOverItsBoundIsTooLarge) {
  EXPECT_EQ(check_frame(message_header(kMaxEagerBytes + 8), kMaxEagerBytes + 8, false).code(),
            Code::too_large);
  uint64_t huge = uint64_t{1} << 60;
  EXPECT_EQ(check_frame(chunk_header(huge, 0, kRendezvousChunkBytes), kRendezvousChunkBytes, true).code(),
            Code::too_large);
  EXPECT_TRUE(
      check_frame(chunk_header(kMaxMessageBytes, 0, kRendezvousChunkBytes), kRendezvousChunkBytes, true)
          .ok());
}

TEST(Frame, ChunksCutAMessageInOneWayOnly) {
  constexpr uint32_t kChunk = kRendezvousChunkBytes;
  auto fits = [](uint64_t message_bytes, uint32_t offset, uint32_t bytes) {
    return check_frame(chunk_header(message_bytes, offset, bytes), bytes, true).ok();
  };
  EXPECT_TRUE(fits(2 * kChunk + 8, 0, kChunk));
  EXPECT_TRUE(fits(2 * kChunk + 8, 2 * kChunk, 8));
  EXPECT_FALSE(fits(2 * kChunk + 8, 0, 8));                // a small one that is not the last
  EXPECT_FALSE(fits(2 * kChunk + 8, kChunk + 8, kChunk));  // in between
  EXPECT_FALSE(fits(2 * kChunk + 8, 2 * kChunk, 16));      // past the end
  EXPECT_FALSE(fits(2 * kChunk, 0, 2 * kChunk));           // two in one
  EXPECT_FALSE(fits(2 * kChunk, 0, 0));
  EXPECT_FALSE(fits(kMaxEagerBytes, 0, kMaxEagerBytes));  // small enough to go eagerly
}

TEST(Frame, OnlyChunksAreAnnounced) {
  EXPECT_FALSE(check_frame(message_header(64), 64, true).ok());
  EXPECT_FALSE(check_frame(chunk_header(1 << 20, 0, 1 << 20), 1 << 20, false).ok());
}

TEST(Frame, HandshakesAndHeartbeatsAreSmall) {
  FrameHeader header;
  header.kind = FrameKind::handshake;
  header.payload_bytes = kMaxHandshakeBytes;
  EXPECT_TRUE(check_frame(header, kMaxHandshakeBytes, false).ok());
  header.payload_bytes = kMaxHandshakeBytes + 8;
  EXPECT_EQ(check_frame(header, kMaxHandshakeBytes + 8, false).code(), Code::too_large);
  header.kind = FrameKind::heartbeat;
  header.payload_bytes = 8;
  EXPECT_EQ(check_frame(header, 8, false).code(), Code::corrupt);
}

TEST(LivedClock, GoesAsTimeGoes) {
  LivedClock clock(750);
  EXPECT_EQ(clock.advance(1'000'000), 0u);
  EXPECT_EQ(clock.advance(1'000'500), 500u);
  EXPECT_EQ(clock.advance(1'000'501), 501u);
}

TEST(LivedClock, HardlyMovesWhileTheProcessIsStopped) {
  LivedClock clock(750);
  clock.advance(1000);
  EXPECT_EQ(clock.advance(61'000), 750u);
  EXPECT_EQ(clock.advance(61'010), 760u);
}

TEST(InboundTurns, GivesTurnsInOrderAsFarAsThereIsRoom) {
  InboundTurns turns(100);
  turns.ask(1, 60);
  turns.ask(2, 50);
  turns.ask(3, 10);
  EXPECT_EQ(turns.next(), 1u);
  EXPECT_EQ(turns.next(), std::nullopt) << "the third does not overtake the second";
  turns.give_back(60);
  EXPECT_EQ(turns.next(), 2u);
  EXPECT_EQ(turns.next(), 3u);
  EXPECT_EQ(turns.next(), std::nullopt);
}

TEST(InboundTurns, LetsAMessageOverTheBoundPassAlone) {
  InboundTurns turns(100);
  turns.ask(1, 500);
  turns.ask(2, 1);
  EXPECT_EQ(turns.next(), 1u);
  EXPECT_EQ(turns.next(), std::nullopt);
  turns.give_back(500);
  EXPECT_EQ(turns.next(), 2u);
}

TEST(InboundTurns, ForgetsWhoIsGone) {
  InboundTurns turns(100);
  turns.ask(1, 100);
  turns.ask(2, 100);
  EXPECT_EQ(turns.next(), 1u);
  turns.forget(2);
  turns.give_back(100);
  EXPECT_EQ(turns.next(), std::nullopt);
}

}  // namespace
}  // namespace shoal::transport
