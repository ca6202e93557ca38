#include <capnp/message.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "schema/checked_reader_internal.h"
#include "schema/wire.capnp.h"
#include "transport/handshake_codec.h"

namespace shoal::transport {

namespace {
constexpr schema::ReadLimits kLimits{.bytes_max = kMaxHandshakeBytes, .segments_max = 8};

Bytes canonical_bytes(schema::Identity::Reader reader) {
  kj::Array<capnp::word> words = capnp::canonicalize(reader);
  auto flat = words.asBytes();
  Bytes out(flat.size());
  if (flat.size() != 0) std::memcpy(out.data(), flat.begin(), flat.size());
  return out;
}

void write_identity(schema::Identity::Builder out, const Identity& identity, uint32_t schema_version) {
  out.setSchemaVersion(schema_version);
  out.setRootId(schema::data_of(identity.root_id));
  out.setJobId(schema::text_of(identity.job_id));
  out.setGeneration(identity.generation);
  out.setEpoch(identity.epoch);
  out.setIncarnation(schema::data_of(identity.incarnation));
  out.setName(schema::text_of(identity.name));
}

Status read_text(std::string& out, capnp::Text::Reader text, size_t bytes_max, std::string_view what) {
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(text, bytes_max, what).status());
  if (!is_clean_utf8(schema::view_of(text)))
    return Status(Code::corrupt, std::string(what) + " is not valid UTF-8 without control characters");
  out = schema::view_of(text);
  return ok_status();
}

Status read_identity(HandshakeFrame& out, schema::Identity::Reader in, uint32_t schema_version) {
  if (in.getSchemaVersion() != schema_version) {
    return Status(Code::version,
                  fmt::format("the peer speaks version {} of the schema, but this node speaks version {}",
                              in.getSchemaVersion(), schema_version));
  }
  SHOAL_ASSIGN_OR_RETURN(out.identity.root_id, Hash128::from_bytes(schema::view_of(in.getRootId())));
  SHOAL_ASSIGN_OR_RETURN(out.identity.incarnation, Hash128::from_bytes(schema::view_of(in.getIncarnation())));
  SHOAL_RETURN_IF_ERROR(read_text(out.identity.job_id, in.getJobId(), base::kMaxJobIdBytes, "the job's id"));
  SHOAL_RETURN_IF_ERROR(read_text(out.identity.name, in.getName(), kMaxPeerNameBytes, "the peer's name"));
  out.identity.generation = in.getGeneration();
  out.identity.epoch = in.getEpoch();
  out.canonical_identity = canonical_bytes(in);
  return ok_status();
}

template <size_t N>
Status read_array(std::array<std::byte, N>& out, capnp::Data::Reader in, std::string_view what) {
  if (in.size() != N)
    return Status(Code::corrupt, fmt::format("{} has {} bytes, but {} are expected", what, in.size(), N));
  std::memcpy(out.data(), in.begin(), N);
  return ok_status();
}

// Never OK: a refusal with any code is an error.
Status read_refusal(uint16_t code, capnp::Text::Reader reason) {
  Code known = code == 0 || code > static_cast<uint16_t>(kLastCode) ? Code::refused : static_cast<Code>(code);
  std::string_view text = schema::view_of(reason);
  bool is_fit = text.size() <= kMaxReasonBytes && is_clean_utf8(text) && !text.empty();
  return Status(known, is_fit ? std::string(text) : "the peer gave no readable reason");
}

Status read_frame(HandshakeFrame& out, schema::Handshake::Reader in, uint32_t schema_version) {
  switch (in.which()) {
    case schema::Handshake::HELLO:
      out.kind = HandshakeKind::hello;
      SHOAL_RETURN_IF_ERROR(read_identity(out, in.getHello().getIdentity(), schema_version));
      return read_array(out.nonce, in.getHello().getNonce(), "a nonce");
    case schema::Handshake::CHALLENGE:
      out.kind = HandshakeKind::challenge;
      SHOAL_RETURN_IF_ERROR(read_identity(out, in.getChallenge().getIdentity(), schema_version));
      SHOAL_RETURN_IF_ERROR(read_array(out.nonce, in.getChallenge().getNonce(), "a nonce"));
      return read_array(out.mac, in.getChallenge().getMac(), "a MAC");
    case schema::Handshake::PROOF:
      out.kind = HandshakeKind::proof;
      return read_array(out.mac, in.getProof(), "a proof");
    case schema::Handshake::WELCOME:
      out.kind = HandshakeKind::welcome;
      out.data_port = in.getWelcome().getDataPort();
      return read_identity(out, in.getWelcome().getIdentity(), schema_version);
    case schema::Handshake::REFUSED:
      out.kind = HandshakeKind::refused;
      out.refusal = read_refusal(in.getRefused().getCode(), in.getRefused().getReason());
      return ok_status();
  }
  return Status(Code::corrupt, "the handshake is of an unknown kind");
}
}  // namespace

Result<HandshakeFrame> decode_handshake(ByteView payload, uint32_t schema_version) {
  return schema::read_checked<schema::Handshake>(payload, kLimits,
                                                 [&](schema::Handshake::Reader in) -> Result<HandshakeFrame> {
                                                   HandshakeFrame out;
                                                   SHOAL_RETURN_IF_ERROR(read_frame(out, in, schema_version));
                                                   return out;
                                                 });
}

Bytes encode_hello(const Identity& identity, uint32_t schema_version, const HandshakeNonce& nonce) {
  capnp::MallocMessageBuilder message;
  auto hello = message.initRoot<schema::Handshake>().initHello();
  write_identity(hello.initIdentity(), identity, schema_version);
  hello.setNonce(schema::data_of(ByteView(nonce)));
  return schema::framed_bytes(message);
}

Bytes encode_challenge(const Identity& identity, uint32_t schema_version, const HandshakeNonce& nonce,
                       const Mac& mac) {
  capnp::MallocMessageBuilder message;
  auto challenge = message.initRoot<schema::Handshake>().initChallenge();
  write_identity(challenge.initIdentity(), identity, schema_version);
  challenge.setNonce(schema::data_of(ByteView(nonce)));
  challenge.setMac(schema::data_of(ByteView(mac)));
  return schema::framed_bytes(message);
}

Bytes encode_proof(const Mac& mac) {
  capnp::MallocMessageBuilder message;
  message.initRoot<schema::Handshake>().setProof(schema::data_of(ByteView(mac)));
  return schema::framed_bytes(message);
}

Bytes encode_welcome(const Identity& identity, uint32_t schema_version, uint16_t data_port) {
  capnp::MallocMessageBuilder message;
  auto welcome = message.initRoot<schema::Handshake>().initWelcome();
  write_identity(welcome.initIdentity(), identity, schema_version);
  welcome.setDataPort(data_port);
  return schema::framed_bytes(message);
}

Bytes canonical_identity(const Identity& identity, uint32_t schema_version) {
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<schema::Identity>();
  write_identity(root, identity, schema_version);
  return canonical_bytes(root.asReader());
}

Bytes encode_refusal(const Status& why) {
  std::string reason = why.message().substr(0, kMaxReasonBytes);
  while (!reason.empty() && !is_clean_utf8(reason)) reason.pop_back();  // a character that was cut in two
  capnp::MallocMessageBuilder message;
  auto refused = message.initRoot<schema::Handshake>().initRefused();
  refused.setCode(static_cast<uint16_t>(why.code()));
  refused.setReason(schema::text_of(reason));
  return schema::framed_bytes(message);
}

Status decode_refusal(ByteView payload) {
  Status refusal;
  Status read =
      schema::read_checked<schema::Handshake>(payload, kLimits, [&](schema::Handshake::Reader in) -> Status {
        if (!in.isRefused()) return Status(Code::corrupt, "a closing frame must hold a reason");
        refusal = read_refusal(in.getRefused().getCode(), in.getRefused().getReason());
        return ok_status();
      });
  return read.ok() ? refusal : read;
}

}  // namespace shoal::transport
