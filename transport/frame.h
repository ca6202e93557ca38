// The header in front of everything that one transport sends to another. docs/reference/transport.md has it
// byte by byte.
//
// A message of at most kMaxEagerBytes is one frame. A larger one goes as a sequence of chunks, one after the
// other, each announced by its header before any byte of it is moved (rendezvous), so that heartbeats pass
// between two chunks and the receiver decides when memory is taken.
#pragma once

#include <array>
#include <cstdint>

#include "shoal/bytes.h"
#include "shoal/status.h"
#include "transport/transport.h"

namespace shoal::transport {

inline constexpr size_t kFrameHeaderBytes = 40;
inline constexpr uint8_t kFrameVersion = 1;
inline constexpr size_t kMaxHandshakeBytes = 4096;                // payload of a handshake or closing frame
inline constexpr size_t kRendezvousChunkBytes = size_t{4} << 20;  // all chunks but the last have this size
static_assert(kMaxEagerBytes < kRendezvousChunkBytes);
static_assert(kMaxHandshakeBytes <= kMaxEagerBytes);
static_assert(kMaxMessageBytes <= UINT32_MAX, "offsets in a message are 32 bits");

enum class FrameKind : uint8_t {
  handshake = 1,  // payload: schema::Handshake; the only kind at the door
  attach = 2,     // no payload; the first by the data way, each way: it carries the session
  heartbeat = 3,  // no payload
  message = 4,    // payload: one whole message
  chunk = 5,      // payload: a part of a message, announced by its header
  closing = 6,    // payload: schema::Handshake, refused: why the sender ends the session
};

struct FrameHeader {
  FrameKind kind = FrameKind::heartbeat;
  uint32_t payload_bytes = 0;  // of this frame
  uint64_t tag = 0;            // of session and direction, agreed in the handshake; 0 in a handshake frame
  uint64_t sequence = 0;       // messages sent before this one in this direction; 0 where there is no message
  uint64_t message_bytes = 0;  // of the whole message; 0 where there is none
  uint32_t offset = 0;         // of this chunk in its message

  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

using FrameHeaderBytes = std::array<std::byte, kFrameHeaderBytes>;

struct OutgoingFrame {
  FrameHeaderBytes header;
  Bytes payload;
};

FrameHeaderBytes encode_frame_header(const FrameHeader& header);

// Code::corrupt for anything that this program would not have written, Code::version for another frame
// version. Bounds of sizes are judged by check_frame, once it is known who sent the frame.
Result<FrameHeader> decode_frame_header(ByteView bytes);

// Whether the sizes are consistent with each other, with the payload that is there (or was announced), and
// with the bounds: Code::too_large or Code::corrupt.
Status check_frame(const FrameHeader& header, uint64_t payload_bytes, bool announced);

}  // namespace shoal::transport
