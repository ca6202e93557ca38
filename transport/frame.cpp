#include "transport/frame.h"

#include <fmt/format.h>

#include <algorithm>

namespace shoal::transport {

namespace {
constexpr std::array<std::byte, 4> kMagic = {std::byte{'S'}, std::byte{'H'}, std::byte{'L'}, std::byte{'F'}};

bool is_known_kind(uint8_t kind) {
  return kind >= static_cast<uint8_t>(FrameKind::handshake) &&
         kind <= static_cast<uint8_t>(FrameKind::closing);
}

Status malformed(std::string what) {
  return Status(Code::corrupt, "malformed frame: " + what);
}

Status check_message_frame(const FrameHeader& header) {
  if (header.message_bytes > kMaxMessageBytes) {
    return Status(Code::too_large, fmt::format("a message of {} bytes is too large: at most {} are allowed",
                                               header.message_bytes, kMaxMessageBytes));
  }
  if (header.kind == FrameKind::message) {
    if (header.payload_bytes > kMaxEagerBytes) {
      return Status(Code::too_large,
                    fmt::format("an eager message of {} bytes is too large: at most {} are allowed",
                                header.payload_bytes, kMaxEagerBytes));
    }
    if (header.message_bytes != header.payload_bytes || header.offset != 0)
      return malformed("an eager frame must hold a whole message");
    return ok_status();
  }
  if (header.message_bytes <= kMaxEagerBytes) return malformed("a small message must not come in chunks");
  uint64_t end = uint64_t{header.offset} + header.payload_bytes;
  bool is_last = end == header.message_bytes;
  if (header.offset % kRendezvousChunkBytes != 0 || header.payload_bytes == 0 || end > header.message_bytes ||
      header.payload_bytes > kRendezvousChunkBytes ||
      (!is_last && header.payload_bytes != kRendezvousChunkBytes)) {
    return malformed(fmt::format("a chunk of {} bytes at {} does not fit a message of {}",
                                 header.payload_bytes, header.offset, header.message_bytes));
  }
  return ok_status();
}
}  // namespace

FrameHeaderBytes encode_frame_header(const FrameHeader& header) {
  FrameHeaderBytes out{};
  std::copy(kMagic.begin(), kMagic.end(), out.begin());
  out[4] = std::byte{kFrameVersion};
  out[5] = static_cast<std::byte>(header.kind);
  store_le64(&out[8], header.tag);
  store_le64(&out[16], header.sequence);
  store_le64(&out[24], header.message_bytes);
  store_le32(&out[32], header.offset);
  store_le32(&out[36], header.payload_bytes);
  return out;
}

Result<FrameHeader> decode_frame_header(ByteView bytes) {
  if (bytes.size() < kMagic.size() + 1 || !std::equal(kMagic.begin(), kMagic.end(), bytes.begin())) {
    return malformed(fmt::format("a header of {} bytes is not one of Shoal", bytes.size()));
  }
  if (uint8_t version = static_cast<uint8_t>(bytes[4]); version != kFrameVersion) {
    return Status(Code::version,
                  fmt::format("the peer speaks version {} of the frames, but this program speaks version {}",
                              version, kFrameVersion));
  }
  if (bytes.size() != kFrameHeaderBytes) {
    return malformed(
        fmt::format("a header has {} bytes, but {} are expected", bytes.size(), kFrameHeaderBytes));
  }
  uint8_t kind = static_cast<uint8_t>(bytes[5]);
  if (!is_known_kind(kind)) return malformed(fmt::format("kind {} is not known", kind));
  if (bytes[6] != std::byte{0} || bytes[7] != std::byte{0}) return malformed("reserved bytes are set");
  FrameHeader header;
  header.kind = static_cast<FrameKind>(kind);
  header.tag = load_le64(&bytes[8]);
  header.sequence = load_le64(&bytes[16]);
  header.message_bytes = load_le64(&bytes[24]);
  header.offset = load_le32(&bytes[32]);
  header.payload_bytes = load_le32(&bytes[36]);
  return header;
}

Status check_frame(const FrameHeader& header, uint64_t payload_bytes, bool announced) {
  if (announced != (header.kind == FrameKind::chunk)) {
    return malformed(announced ? "a rendezvous must announce a chunk" : "a chunk came without a rendezvous");
  }
  if (header.kind == FrameKind::message || header.kind == FrameKind::chunk) {
    SHOAL_RETURN_IF_ERROR(check_message_frame(header));
  } else if (header.sequence != 0 || header.message_bytes != 0 || header.offset != 0) {
    return malformed("this kind of frame must have no position in a message");
  } else if ((header.kind == FrameKind::heartbeat || header.kind == FrameKind::attach) &&
             header.payload_bytes != 0) {
    return malformed("this kind of frame must have no payload");
  } else if (header.payload_bytes > kMaxHandshakeBytes) {
    return Status(Code::too_large, fmt::format("a handshake of {} bytes is too large: at most {} are allowed",
                                               header.payload_bytes, kMaxHandshakeBytes));
  }
  if (header.payload_bytes != payload_bytes) {
    return malformed(fmt::format("the header announces {} bytes of payload, but {} came",
                                 header.payload_bytes, payload_bytes));
  }
  return ok_status();
}

}  // namespace shoal::transport
