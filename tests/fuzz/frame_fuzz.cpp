// Fuzzes what arrives on a connection between nodes before authentication: the header of a frame and the
// payload of a handshake. Input: a header of kFrameHeaderBytes, then the payload.
#include <memory>
#include <string>

#include "tests/fuzz/fuzz_target.h"
#include "transport/frame.h"
#include "transport/handshake.h"
#include "transport/message_check.h"

using namespace shoal;

namespace {

transport::Identity some_identity() {
  transport::Identity identity;
  identity.job_id = "job";
  identity.name = "host";
  identity.generation = 1;
  return identity;
}

void shake_hands(transport::HandshakeRole role, ByteView payload) {
  static const auto token = std::make_shared<const Bytes>(32, std::byte{7});
  transport::Handshake handshake(role, some_identity(), token, transport::HandshakeNonce{});
  if (role == transport::HandshakeRole::connector) (void)handshake.hello();
  const transport::Handshake::Answer answer = handshake.on_frame(payload);
  SHOAL_CHECK(!answer.proven);  // the input does not contain the token
  SHOAL_CHECK(answer.reply.size() <= transport::kMaxHandshakeBytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ByteView bytes = view_of_input(data, size);
  const size_t header_bytes = std::min(size, transport::kFrameHeaderBytes);
  auto header = transport::decode_frame_header(bytes.first(header_bytes));
  const ByteView payload = bytes.subspan(header_bytes);
  if (header.ok()) {
    const transport::FrameHeaderBytes encoded = transport::encode_frame_header(*header);
    SHOAL_CHECK(std::equal(encoded.begin(), encoded.end(), bytes.begin()));
    (void)transport::check_frame(*header, payload.size(), false);
    (void)transport::check_frame(*header, payload.size(), true);
  }
  (void)transport::check_segment_table(payload);
  if (payload.size() > transport::kMaxHandshakeBytes) return 0;
  SHOAL_CHECK(!transport::decode_refusal(payload).ok());
  shake_hands(transport::HandshakeRole::listener, payload);
  shake_hands(transport::HandshakeRole::connector, payload);
  return 0;
}
