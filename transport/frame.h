// The header of every frame that one transport sends to another. docs/reference/transport.md defines each
// byte.
//
// A message of at most kMaxEagerBytes is one frame. A larger one is a sequence of chunks. Each chunk is
// announced by its header before any of its bytes are sent (rendezvous). So heartbeats can pass between two
// chunks, and the receiver decides when to allocate memory.
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
inline constexpr size_t kRendezvousChunkBytes = size_t{4} << 20;  // size of every chunk but the last
static_assert(kMaxEagerBytes < kRendezvousChunkBytes);
static_assert(kMaxHandshakeBytes <= kMaxEagerBytes);
static_assert(kMaxMessageBytes <= UINT32_MAX, "offsets in a message are 32 bits");

enum class FrameKind : uint8_t {
  handshake = 1,  // payload: schema::Handshake; the only kind allowed before the handshake has succeeded
  attach = 2,  // no payload; the first frame of each side on the data connection; contains the session's tag
  heartbeat = 3,  // no payload
  message = 4,    // payload: one whole message
  chunk = 5,      // payload: part of a message, announced by its header
  closing = 6,    // payload: a refused schema::Handshake, which states why the sender ends the session
};

inline void append(Bytes& out, ByteView bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

struct FrameHeader {
  FrameKind kind = FrameKind::heartbeat;
  uint32_t payload_bytes = 0;  // of this frame
  uint64_t tag = 0;            // of session and direction, from the handshake; 0 in a handshake frame
  uint64_t sequence = 0;  // number of messages sent before this one in this direction; 0 without a message
  uint64_t message_bytes = 0;  // of the whole message; 0 without a message
  uint32_t offset = 0;         // of this chunk in its message

  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

using FrameHeaderBytes = std::array<std::byte, kFrameHeaderBytes>;

struct OutgoingFrame {
  FrameHeaderBytes header;
  Bytes payload;
};

FrameHeaderBytes encode_frame_header(const FrameHeader& header);

// Code::corrupt for a header that this program would not write, Code::version for another frame version.
// check_frame checks the sizes, once the sender of the frame is known.
Result<FrameHeader> decode_frame_header(ByteView bytes);

// Whether the sizes are consistent with each other, with the received or announced payload, and with the
// bounds. Otherwise Code::too_large or Code::corrupt.
Status check_frame(const FrameHeader& header, uint64_t payload_bytes, bool announced);

}  // namespace shoal::transport
