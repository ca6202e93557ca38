#include "transport/handshake.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstring>

#include "schema/wire.capnp.h"
#include "shoal/hash.h"
#include "transport/frame.h"
#include "transport/handshake_codec.h"

namespace shoal::transport {

namespace {
constexpr std::string_view kListenerLabel = "shoal-listener";
constexpr std::string_view kConnectorLabel = "shoal-connector";
constexpr std::string_view kTagsLabel = "shoal-frame-tags";

void append_sized(Bytes& out, ByteView bytes) {
  std::array<std::byte, 4> size;
  store_le32(size.data(), static_cast<uint32_t>(bytes.size()));
  append(out, size);
  append(out, bytes);
}

bool equal_in_constant_time(const Mac& a, const Mac& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Status out_of_turn() {
  return Status(Code::corrupt, "a handshake frame came out of turn");
}
}  // namespace

HandshakeNonce random_handshake_nonce() {
  static_assert(kHandshakeNonceBytes == 2 * sizeof(Hash128::bytes));
  HandshakeNonce nonce;
  for (size_t half = 0; half < 2; ++half) {
    Hash128 random = random_128();
    std::memcpy(nonce.data() + half * random.bytes.size(), random.bytes.data(), random.bytes.size());
  }
  return nonce;
}

Handshake::Handshake(HandshakeRole role, Identity self, std::shared_ptr<const Bytes> token,
                     const HandshakeNonce& nonce)
    : Handshake(role, std::move(self), std::move(token), nonce, schema::SCHEMA_VERSION) {}

Handshake::Handshake(HandshakeRole role, Identity self, std::shared_ptr<const Bytes> token,
                     const HandshakeNonce& nonce, uint32_t schema_version)
    : role_(role), self_(std::move(self)), schema_version_(schema_version), token_(std::move(token)) {
  SHOAL_CHECK(!token_->empty());
  mine_ = Side{nonce, canonical_identity(self_, schema_version_)};
}

Bytes Handshake::hello() {
  SHOAL_CHECK(role_ == HandshakeRole::connector && state_ == State::start);
  state_ = State::hello_sent;
  return encode_hello(self_, schema_version_, mine_.nonce);
}

Handshake::Answer Handshake::on_frame(ByteView payload) {
  auto decoded = decode_handshake(payload, schema_version_);
  if (!decoded.ok()) return refuse(decoded.status());
  const HandshakeFrame& frame = *decoded;
  if (frame.kind == HandshakeKind::refused) {
    state_ = State::done;
    return Answer{.failure = frame.refusal};
  }
  if (state_ == State::start && frame.kind == HandshakeKind::hello) return on_hello(frame);
  if (state_ == State::hello_sent && frame.kind == HandshakeKind::challenge) return on_challenge(frame);
  if (state_ == State::challenge_sent && frame.kind == HandshakeKind::proof) return on_proof(frame);
  if (state_ == State::proof_sent && frame.kind == HandshakeKind::welcome) return on_welcome(frame);
  return refuse(out_of_turn());
}

Handshake::Answer Handshake::refuse(const Status& why) {
  state_ = State::done;
  return Answer{.reply = encode_refusal(why), .failure = why};
}

Handshake::Answer Handshake::on_hello(const HandshakeFrame& frame) {
  if (role_ != HandshakeRole::listener) return refuse(out_of_turn());
  peer_ = frame.identity;
  theirs_ = Side{frame.nonce, frame.canonical_identity};
  if (Status same = check_peer(); !same.ok()) return refuse(same);
  state_ = State::challenge_sent;
  return Answer{.reply = encode_challenge(self_, schema_version_, mine_.nonce, mac(kListenerLabel))};
}

Handshake::Answer Handshake::on_challenge(const HandshakeFrame& frame) {
  peer_ = frame.identity;
  theirs_ = Side{frame.nonce, frame.canonical_identity};
  if (Status same = check_peer(); !same.ok()) return refuse(same);
  if (!equal_in_constant_time(frame.mac, mac(kListenerLabel))) {
    return refuse(Status(Code::refused, "the listener does not know this job's token"));
  }
  state_ = State::proof_sent;
  return Answer{.reply = encode_proof(mac(kConnectorLabel))};
}

Handshake::Answer Handshake::on_proof(const HandshakeFrame& frame) {
  if (!equal_in_constant_time(frame.mac, mac(kConnectorLabel))) {
    return refuse(Status(Code::refused, "the connector does not know this job's token"));
  }
  state_ = State::done;
  derive_tags();
  return Answer{.proven = true};
}

Handshake::Answer Handshake::on_welcome(const HandshakeFrame& frame) {
  if (frame.canonical_identity != theirs_.identity) {
    return refuse(Status(Code::corrupt, "the listener changed its identity within the handshake"));
  }
  state_ = State::done;
  data_port_ = frame.data_port;
  derive_tags();
  return Answer{.proven = true};
}

Bytes Handshake::welcome(uint16_t data_port) const {
  SHOAL_CHECK(role_ == HandshakeRole::listener && state_ == State::done && tags_.connector != 0);
  return encode_welcome(self_, schema_version_, data_port);
}

Status Handshake::check_peer() const {
  if (peer_.root_id != self_.root_id) {
    return Status(Code::refused, fmt::format("the roots differ: the peer has {}, but this node has {}",
                                             peer_.root_id.to_hex(), self_.root_id.to_hex()));
  }
  if (peer_.job_id != self_.job_id) {
    return Status(Code::refused,
                  fmt::format("the jobs differ: the peer belongs to '{}', but this node to '{}'",
                              peer_.job_id, self_.job_id));
  }
  if (peer_.generation != 0 && self_.generation != 0 && peer_.generation != self_.generation) {
    return Status(Code::refused,
                  fmt::format("the generations differ: the peer is in {}, but this node is in {}",
                              peer_.generation, self_.generation));
  }
  return ok_status();
}

std::array<std::byte, 32> Handshake::mac(std::string_view label) const {
  bool is_connector = role_ == HandshakeRole::connector;
  const Side& connector = is_connector ? mine_ : theirs_;
  const Side& listener = is_connector ? theirs_ : mine_;
  Bytes text;
  append_sized(text, as_view(label));
  append(text, connector.nonce);
  append(text, listener.nonce);
  append_sized(text, connector.identity);
  append_sized(text, listener.identity);
  Mac out{};
  unsigned size = 0;
  const unsigned char* done = HMAC(EVP_sha256(), token_->data(), static_cast<int>(token_->size()),
                                   reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                                   reinterpret_cast<unsigned char*>(out.data()), &size);
  SHOAL_CHECK(done != nullptr && size == out.size());
  return out;
}

void Handshake::derive_tags() {
  Mac secret = mac(kTagsLabel);
  // 0 means "no tag" in handshake frames.
  tags_.connector = load_le64(secret.data()) | 1;
  tags_.listener = load_le64(secret.data() + 8) | 1;
}

}  // namespace shoal::transport
