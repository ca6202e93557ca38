// Encodes and decodes schema::Handshake. Every decoder checks sizes and characters, never throws, and leaves
// its results unchanged on failure.
#pragma once

#include "shoal/bytes.h"
#include "shoal/status.h"
#include "transport/handshake.h"

namespace shoal::transport {

enum class HandshakeKind { hello, challenge, proof, welcome, refused };

using Mac = std::array<std::byte, 32>;

struct HandshakeFrame {
  HandshakeKind kind = HandshakeKind::refused;
  Identity identity;  // hello, challenge, welcome
  // The identity as the sender encoded it, including fields unknown to this program.
  Bytes canonical_identity;
  HandshakeNonce nonce{};  // hello, challenge
  Mac mac{};               // challenge, proof
  uint16_t data_port = 0;  // welcome
  Status refusal;          // refused
};

// Code::version if the sender's schema version is not `schema_version`, Code::corrupt for malformed bytes.
Result<HandshakeFrame> decode_handshake(ByteView payload, uint32_t schema_version);

Bytes encode_hello(const Identity& identity, uint32_t schema_version, const HandshakeNonce& nonce);
Bytes encode_challenge(const Identity& identity, uint32_t schema_version, const HandshakeNonce& nonce,
                       const Mac& mac);
Bytes encode_proof(const Mac& mac);
Bytes encode_welcome(const Identity& identity, uint32_t schema_version, uint16_t data_port);

Bytes canonical_identity(const Identity& identity, uint32_t schema_version);

}  // namespace shoal::transport
