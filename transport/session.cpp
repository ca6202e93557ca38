#include "transport/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "transport/message_check.h"

namespace shoal::transport {

Session::Session(HandshakeRole role, const SessionSettings& settings, const HandshakeNonce& nonce,
                 std::string remote, uint64_t now_ms)
    : role_(role),
      limits_(settings.limits),
      handshake_(role, settings.self, settings.token, nonce),
      remote_(std::move(remote)),
      began_ms_(now_ms),
      last_received_ms_(now_ms),
      last_sent_ms_(now_ms) {
  if (role_ == HandshakeRole::connector) push_frame(FrameKind::handshake, handshake_.hello());
}

void Session::on_handshake_frame(ByteView header_bytes, ByteView payload, uint64_t now_ms) {
  if (!is_beginning()) return;
  auto header = decode_frame_header(header_bytes);
  Status fits = header.status();
  if (fits.ok() && (header->kind != FrameKind::handshake || header->tag != 0)) {
    fits = Status(Code::refused, "a frame came before the handshake was done");
  }
  if (fits.ok()) fits = check_frame(*header, payload.size(), false);
  if (!fits.ok()) {
    ++malformed_frames_;
    end(fits);
    return;
  }
  last_received_ms_ = now_ms;
  if (state_.is(SessionState::handshaking)) return on_handshake(payload);
  // No reason is sent back to the peer.
  finish(SessionTrigger::refused, decode_refusal(payload).with_context("the handshake was rejected"));
}

void Session::on_handshake(ByteView payload) {
  Handshake::Answer answer = handshake_.on_frame(payload);
  if (!answer.reply.empty()) push_frame(FrameKind::handshake, std::move(answer.reply));
  if (!answer.failure.ok()) {
    finish(SessionTrigger::refused, answer.failure.with_context("the handshake was rejected"));
  } else if (answer.proven) {
    on_proven();
  }
}

void Session::on_proven() {
  const FrameTags& tags = handshake_.tags();
  const bool is_connector = role_ == HandshakeRole::connector;
  state_.on(is_connector ? SessionTrigger::proven_to_connector : SessionTrigger::proven_to_listener);
  outgoing_tag_ = is_connector ? tags.connector : tags.listener;
  incoming_tag_ = is_connector ? tags.listener : tags.connector;
  if (!peer().name.empty()) remote_ = fmt::format("{} ({})", peer().name, remote_);
  if (is_connector) push_frame(FrameKind::attach, Bytes());
}

void Session::offer_data_port(uint16_t port) {
  state_.on(SessionTrigger::port_offered);
  push_frame(FrameKind::handshake, handshake_.welcome(port));
}

bool Session::on_frame(ByteView header_bytes, ByteView payload, uint64_t now_ms) {
  if (has_ended()) return false;
  auto header = decode_frame_header(header_bytes);
  // Only the peer knows the tag. A frame without it may come from anyone, and is dropped without effect on
  // the session.
  if (!header.ok() || incoming_tag_ == 0 || header->tag != incoming_tag_) {
    ++malformed_frames_;
    return false;
  }
  last_received_ms_ = now_ms;
  if (Status fits = accept_frame(*header, payload); !fits.ok()) {
    ++malformed_frames_;
    end(fits);
    return false;
  }
  switch (header->kind) {
    case FrameKind::attach:
      state_.on(SessionTrigger::attached);
      if (role_ == HandshakeRole::listener) push_frame(FrameKind::attach, Bytes());
      break;
    case FrameKind::closing:
      finish(SessionTrigger::ended, decode_refusal(payload).with_context("closed by the peer"));
      break;
    case FrameKind::message:
      ++next_in_;
      messages_.emplace_back(payload.begin(), payload.end());
      return true;
    case FrameKind::heartbeat:
    case FrameKind::handshake:
    case FrameKind::chunk:
      break;
  }
  return false;
}

Status Session::accept_frame(const FrameHeader& header, ByteView payload) const {
  SHOAL_RETURN_IF_ERROR(check_frame(header, payload.size(), false));
  if (header.kind == FrameKind::handshake)
    return Status(Code::corrupt, "a handshake frame came after the handshake");
  if (header.kind == FrameKind::attach) {
    if (state_.is(SessionState::attaching)) return ok_status();
    return Status(Code::corrupt, is_up() ? "a second attach came" : "an attach came before the welcome");
  }
  if (!is_up()) return Status(Code::corrupt, "a frame came before the connection was attached");
  if (header.kind != FrameKind::message) return ok_status();
  SHOAL_RETURN_IF_ERROR(check_order(header));
  return check_segment_table(payload);
}

bool Session::on_announced(ByteView header_bytes, uint64_t payload_bytes, uint64_t now_ms) {
  if (has_ended()) return false;
  auto header = decode_frame_header(header_bytes);
  if (!header.ok() || incoming_tag_ == 0 || header->tag != incoming_tag_) {
    ++malformed_frames_;
    return false;
  }
  Status fits;
  if (!is_up()) fits = Status(Code::corrupt, "a rendezvous came before the connection was attached");
  if (fits.ok()) fits = check_frame(*header, payload_bytes, true);
  if (fits.ok()) fits = check_order(*header);
  if (!fits.ok()) {
    ++malformed_frames_;
    end(fits);
    return false;
  }
  last_received_ms_ = now_ms;
  announced_ = *header;
  is_fetching_ = true;
  return true;
}

// A message must begin where the previous one ended, and a chunk where the previous chunk ended.
Status Session::check_order(const FrameHeader& header) const {
  bool is_next = header.sequence == next_in_ && header.offset == incoming_.size() && !is_fetching_;
  if (is_next && header.offset != 0) is_next = header.message_bytes == announced_.message_bytes;
  if (is_next) return ok_status();
  return Status(Code::corrupt,
                fmt::format("a frame came out of order: message {} at {}, but message {} at {} was expected",
                            header.sequence, header.offset, next_in_, incoming_.size()));
}

MutableByteView Session::fetch_buffer(uint64_t now_ms) {
  SHOAL_CHECK(is_fetching_);
  has_turn_ = true;
  progressed_ms_ = now_ms;
  try {
    incoming_.reserve(announced_message_bytes());
    incoming_.resize(announced_.offset + announced_.payload_bytes);
  } catch (const std::bad_alloc&) {
    is_fetching_ = false;
    end(Status(Code::too_large,
               fmt::format("no memory for a message of {} bytes", announced_message_bytes())));
    return {};
  }
  return MutableByteView(incoming_).subspan(announced_.offset);
}

void Session::on_fetched(uint64_t now_ms) {
  SHOAL_CHECK(is_fetching_);
  is_fetching_ = false;
  if (!is_up()) return;
  last_received_ms_ = progressed_ms_ = now_ms;
  if (incoming_.size() < announced_.message_bytes) return;
  has_turn_ = false;
  if (Status fits = check_segment_table(incoming_); !fits.ok()) {
    ++malformed_frames_;
    end(fits);
    return;
  }
  ++next_in_;
  messages_.push_back(std::exchange(incoming_, Bytes()));
}

void Session::on_link_lost(const Status& why) {
  if (has_ended()) return;
  const bool is_refused = state_.is(SessionState::handshaking) && why.code() == Code::refused;
  finish(is_refused ? SessionTrigger::refused : SessionTrigger::ended,
         awaits_connection() ? why.with_context("no data connection") : why);
  handshake_frames_.clear();
  frames_.clear();
}

void Session::end(const Status& why) {
  if (has_ended()) return;
  push_frame(is_up() ? FrameKind::closing : FrameKind::handshake, encode_refusal(why));
  const bool is_refused = !is_up() && why.code() != Code::unavailable;
  finish(is_refused ? SessionTrigger::refused : SessionTrigger::ended, why);
}

void Session::finish(SessionTrigger trigger, const Status& why) {
  state_.on(trigger);
  end_reason_ = why.with_context(remote_);
}

void Session::tick(uint64_t now_ms) {
  if (is_beginning() && now_ms - began_ms_ >= limits_.handshake_timeout_ms) {
    const char* what = awaits_connection() ? "no data connection" : "no answer";
    end(Status(Code::unavailable, fmt::format("{} within {} ms", what, limits_.handshake_timeout_ms)));
  }
  if (!is_up()) return;
  if (now_ms - last_received_ms_ >= limits_.peer_lost_after_ms) {
    end(Status(Code::unavailable,
               fmt::format("the peer has sent nothing for {} ms", now_ms - last_received_ms_)));
  } else if (is_stalled(now_ms)) {
    end(Status(Code::unavailable, fmt::format("a message of {} bytes stalled at byte {}",
                                              announced_.message_bytes, announced_.offset)));
  } else if (now_ms - last_sent_ms_ >= limits_.heartbeat_interval_ms) {
    push_frame(FrameKind::heartbeat, Bytes());
    last_sent_ms_ = now_ms;
  }
}

bool Session::is_stalled(uint64_t now_ms) const {
  return has_turn_ && now_ms - progressed_ms_ >= limits_.message_stall_ms;
}

uint64_t Session::next_due_ms() const {
  if (has_ended()) return UINT64_MAX;
  if (is_beginning()) return began_ms_ + limits_.handshake_timeout_ms;
  return std::min(last_received_ms_ + limits_.peer_lost_after_ms,
                  last_sent_ms_ + limits_.heartbeat_interval_ms);
}

void Session::push_frame(FrameKind kind, Bytes payload) {
  FrameHeader header;
  header.kind = kind;
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  header.tag = kind == FrameKind::handshake ? 0 : outgoing_tag_;
  auto& frames = kind == FrameKind::handshake ? handshake_frames_ : frames_;
  frames.push_back({encode_frame_header(header), std::move(payload)});
}

FrameHeaderBytes Session::seal(size_t message_bytes, size_t offset, size_t bytes, bool chunk) {
  SHOAL_CHECK(is_up() && offset + bytes <= message_bytes);
  FrameHeader header;
  header.kind = chunk ? FrameKind::chunk : FrameKind::message;
  header.payload_bytes = static_cast<uint32_t>(bytes);
  header.tag = outgoing_tag_;
  header.sequence = next_out_;
  header.message_bytes = message_bytes;
  header.offset = static_cast<uint32_t>(offset);
  if (offset + bytes == message_bytes) ++next_out_;
  return encode_frame_header(header);
}

std::vector<OutgoingFrame> Session::take_handshake_frames() {
  return std::exchange(handshake_frames_, {});
}
std::vector<OutgoingFrame> Session::take_frames() {
  return std::exchange(frames_, {});
}
std::vector<Bytes> Session::take_messages() {
  return std::exchange(messages_, {});
}
uint64_t Session::take_malformed_frames() {
  return std::exchange(malformed_frames_, 0);
}

}  // namespace shoal::transport
