// The handshake: how two nodes prove to each other that they know the job's token, and that they mean the
// same root, the same job, the same generation and the same schema. A pure state machine: no I/O, no clock,
// no randomness of its own.
//
//   connector                                       listener
//   hello{identity, nonce}                ->
//                                         <-        challenge{identity, nonce, mac}
//   proof                                 ->
//                                         <-        welcome{identity, data port}
//
// mac and proof are HMAC-SHA256 under the token, over a label of the role, both nonces and both identities in
// canonical encoding, each with its length before it: neither can be replayed, reflected or moved to another
// pair of identities. Either side may answer refused{code, reason} instead. The data are neither
// encrypted nor signed frame by frame; frames carry a tag that only the two sides know, so that nobody else
// can speak into a session blindly. docs/reference/transport.md has the transcript. Challenge and response
// with mutual authentication: ISO/IEC 9798-4, three pass.
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
inline constexpr size_t kMaxReasonBytes = 512;  // longer ones are cut
static_assert(base::kMaxJobIdBytes + kMaxPeerNameBytes + kMaxReasonBytes < kMaxHandshakeBytes / 2);

using HandshakeNonce = std::array<std::byte, kHandshakeNonceBytes>;
HandshakeNonce random_handshake_nonce();

enum class HandshakeRole { connector, listener };

// What both sides write into the frames of this session, known to nobody without the token.
struct FrameTags {
  uint64_t connector = 0;  // in what the connector sends
  uint64_t listener = 0;
};

struct HandshakeFrame;

class Handshake {
 public:
  // `token` is shared by all sessions. `schema_version` differs from this program's only in tests.
  Handshake(HandshakeRole role, Identity self, std::shared_ptr<const Bytes> token,
            const HandshakeNonce& nonce);
  Handshake(HandshakeRole role, Identity self, std::shared_ptr<const Bytes> token,
            const HandshakeNonce& nonce, uint32_t schema_version);

  // The connector's first frame.
  Bytes hello();

  struct Answer {
    Bytes reply;          // payload of a handshake frame to send; empty: nothing to send
    bool proven = false;  // both sides are proven: peer() and tags() hold. A listener goes on with welcome()
    Status failure;       // not OK: the session is over; the reply, if any, tells the other side why
  };
  // Feeds the payload of one handshake frame (at most kMaxHandshakeBytes). Not after `proven` or a failure.
  Answer on_frame(ByteView payload);

  // The listener's last frame, once it has a port for the connector's data.
  Bytes welcome(uint16_t data_port) const;
  uint16_t data_port() const { return data_port_; }  // the connector's, from the welcome

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

// A refusal or a closing as payload, and back. The reason is cut and cleaned: it is shown to people.
Bytes encode_refusal(const Status& why);
Status decode_refusal(ByteView payload);  // never OK; Code::corrupt where it cannot be read

}  // namespace shoal::transport
