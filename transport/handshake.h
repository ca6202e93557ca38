// The handshake: two nodes prove to each other that they know the job's token, and that they have the same
// root, job, generation and schema version. A pure state machine without I/O, clock or random numbers.
//
//   connector                                       listener
//   hello{identity, nonce}                ->
//                                         <-        challenge{identity, nonce, mac}
//   proof                                 ->
//                                         <-        welcome{identity, data port}
//
// mac and proof are HMAC-SHA256 under the token. The input is a label of the role, both nonces, and both
// identities in canonical encoding, each preceded by its length. So neither value can be replayed, reflected,
// or used with other identities. Either peer may answer refused{code, reason} instead.
//
// The handshake neither encrypts nor signs later frames. Each frame carries a tag that only the two sides
// know, so that a third party cannot inject frames into a session blindly. docs/reference/transport.md has
// the transcript. The scheme is challenge and response with mutual authentication, ISO/IEC 9798-4, three
// pass.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "base/limits.h"
#include "shoal/bytes.h"
#include "shoal/status.h"
#include "transport/frame.h"
#include "transport/transport.h"

namespace shoal::transport {

inline constexpr size_t kHandshakeNonceBytes = 32;
inline constexpr size_t kMaxTokenBytes = 4096;
inline constexpr size_t kMaxPeerNameBytes = 256;
inline constexpr size_t kMaxReasonBytes = 512;  // a longer reason is shortened
static_assert(base::kMaxJobIdBytes + kMaxPeerNameBytes + kMaxReasonBytes < kMaxHandshakeBytes / 2);

using HandshakeNonce = std::array<std::byte, kHandshakeNonceBytes>;
HandshakeNonce random_handshake_nonce();

enum class HandshakeRole { connector, listener };

// The tags that the sides write into the frames of this session. Only a holder of the token can compute them.
struct FrameTags {
  uint64_t connector = 0;  // in frames from the connector
  uint64_t listener = 0;
};

struct HandshakeFrame;

class Handshake {
 public:
  // All sessions share `token`. `schema_version` differs from this program's only in tests.
  Handshake(HandshakeRole role, Identity self, std::shared_ptr<const Bytes> token,
            const HandshakeNonce& nonce);
  Handshake(HandshakeRole role, Identity self, std::shared_ptr<const Bytes> token,
            const HandshakeNonce& nonce, uint32_t schema_version);

  // The connector's first frame.
  Bytes hello();

  struct Answer {
    Bytes reply;  // payload of a handshake frame to send; empty: nothing to send
    // Both sides are proven: peer() and tags() are valid. A listener continues with welcome().
    bool proven = false;
    Status failure;  // not OK: the session has ended; the reply, if any, contains the reason
  };
  // Processes the payload of one handshake frame (at most kMaxHandshakeBytes). Must not be called after
  // `proven` or a failure.
  Answer on_frame(ByteView payload);

  // The listener's last frame, once it knows the port for the connector's data.
  Bytes welcome(uint16_t data_port) const;
  uint16_t data_port() const { return data_port_; }  // a connector's; from the welcome frame

  const Identity& peer() const { return peer_; }
  const FrameTags& tags() const { return tags_; }

 private:
  enum class State { start, hello_sent, challenge_sent, proof_sent, done };

  struct Side {
    HandshakeNonce nonce{};
    Bytes identity;  // canonical encoding
  };

  Answer refuse(const Status& why);
  Answer on_hello(const HandshakeFrame& frame);
  Answer on_challenge(const HandshakeFrame& frame);
  Answer on_proof(const HandshakeFrame& frame);
  Answer on_welcome(const HandshakeFrame& frame);
  Status check_peer() const;
  std::array<std::byte, 32> mac(std::string_view label) const;
  void derive_tags();

  HandshakeRole role_;
  State state_ = State::start;
  Identity self_, peer_;
  uint32_t schema_version_;
  std::shared_ptr<const Bytes> token_;
  Side mine_, theirs_;
  FrameTags tags_;
  uint16_t data_port_ = 0;
};

// The payload of a refused handshake or of a closing frame, and its decoder. The reason is shortened and
// cleaned of control characters, because it is displayed.
Bytes encode_refusal(const Status& why);
Status decode_refusal(ByteView payload);  // never OK; Code::corrupt if the payload cannot be read

}  // namespace shoal::transport
