// One session with one peer: handshake, frames, order, heartbeats and silence, as a state machine without
// I/O. The engine (transport/live/) feeds it what arrived and the time, and sends what it asks for.
//
// A session begins at the door, where only small handshake frames pass, and strangers get no further. Once
// both sides are proven, the connector attaches, and all later frames pass by the data way: the same TCP
// connection, or, where the listener names a port, a connection of UCX to that port.
//
// Times are milliseconds of a LivedClock (transport/lived_clock.h). Nothing here throws but std::bad_alloc.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shoal/bytes.h"
#include "shoal/status.h"
#include "transport/frame.h"
#include "transport/handshake.h"
#include "transport/limits.h"

namespace shoal::transport {

struct SessionSettings {
  Identity self;
  std::shared_ptr<const Bytes> token;
  TransportLimits limits;
};

class Session {
 public:
  enum class Phase { handshaking, attaching, up, ended };

  // `remote` names the peer in errors: the address that was connected to, or that it came from. A connector's
  // hello is ready to be taken for the door at once.
  Session(HandshakeRole role, const SessionSettings& settings, const HandshakeNonce& nonce,
          std::string remote, uint64_t now_ms);

  Phase phase() const { return phase_; }
  bool was_up() const { return was_up_; }
  bool is_receiving() const { return is_fetching_ || !incoming_.empty(); }  // a message in chunks
  const Identity& peer() const { return handshake_.peer(); }                // once it was up
  const std::string& remote() const { return remote_; }
  const Status& end_reason() const { return end_reason_; }  // not OK once ended
  bool was_refused() const { return was_refused_; }         // ended in the handshake, by either side

  // A handshake frame arrived at the door; a payload over kMaxHandshakeBytes may be left out.
  void on_door_frame(ByteView header, ByteView payload, uint64_t now_ms);
  // A listener's, proven and waiting for a port to tell the connector; 0: the connection stays as it is.
  bool wants_data_port() const { return wants_data_port_; }
  void offer_data_port(uint16_t port);
  // A connector's, once it is welcome: where to connect to, and attach. 0: by the connection that there is.
  uint16_t data_port() const { return handshake_.data_port(); }
  // What tells frames of this session's peer from anybody else's; 0 before attaching.
  uint64_t incoming_tag() const { return incoming_tag_; }

  // A frame arrived whole by the data connection. True if it carried a message that the session accepted.
  bool on_frame(ByteView header, ByteView payload, uint64_t now_ms);

  // A chunk is announced by rendezvous. True: fetch `payload_bytes` of it into fetch_buffer(), then call
  // on_fetched. False: drop it; the session may have ended. Nothing is allocated before fetch_buffer.
  bool on_announced(ByteView header, uint64_t payload_bytes, uint64_t now_ms);
  // Of the message whose chunk was announced last: all of it is to be reserved before its first chunk is
  // fetched.
  size_t announced_message_bytes() const { return static_cast<size_t>(announced_.message_bytes); }
  bool announced_first_chunk() const { return announced_.offset == 0; }
  // Empty if there is no memory for it; then the session has ended.
  MutableByteView fetch_buffer(uint64_t now_ms);
  void on_fetched(uint64_t now_ms);

  // A part of a frame arrived by the data way, or this side does not read what is there: no silence.
  void on_heard(uint64_t now_ms) {
    if (phase_ == Phase::up) last_heard_ms_ = now_ms;
  }
  // The connection broke, was refused (Code::refused) or cannot be made. No frame can be sent any more.
  void on_link_lost(const Status& why);
  // Ends the session and tells the peer. Nothing happens if it has ended.
  void end(const Status& why);

  // Heartbeats, silence and the handshake's deadline; due when next_due_ms() has come.
  void tick(uint64_t now_ms);
  uint64_t next_due_ms() const;

  // What is to be sent now, in this order: at the door, and by the data connection before any message. What
  // is left when the session has ended says why it ended.
  std::vector<OutgoingFrame> take_door_frames();
  std::vector<OutgoingFrame> take_frames();
  bool has_door_frames() const { return !door_frames_.empty(); }
  bool has_frames() const { return !frames_.empty(); }
  // Messages received since, in order.
  std::vector<Bytes> take_messages();
  uint64_t take_malformed_frames();

  // The header of the next frame of the message being sent; `offset + bytes == message_bytes` ends it. Only
  // while up.
  FrameHeaderBytes seal(size_t message_bytes, size_t offset, size_t bytes, bool chunk);
  void on_sent(uint64_t now_ms) { last_sent_ms_ = now_ms; }

 private:
  void on_handshake(ByteView payload);
  void on_proven();
  bool is_stalled(uint64_t now_ms) const;
  Status accept_frame(const FrameHeader& header, ByteView payload) const;
  Status check_order(const FrameHeader& header) const;
  void push_frame(FrameKind kind, Bytes payload);
  void finish(const Status& why);

  HandshakeRole role_;
  TransportLimits limits_;
  Handshake handshake_;
  std::string remote_;
  Phase phase_ = Phase::handshaking;
  Status end_reason_;
  bool was_up_ = false;
  bool was_refused_ = false;
  bool wants_data_port_ = false;
  uint64_t malformed_frames_ = 0;

  uint64_t began_ms_, last_heard_ms_, last_sent_ms_;
  uint64_t outgoing_tag_ = 0, incoming_tag_ = 0;
  uint64_t next_out_ = 0, next_in_ = 0;

  FrameHeader announced_;
  bool is_fetching_ = false;
  bool has_turn_ = false;       // the incoming message has its memory
  uint64_t progressed_ms_ = 0;  // when it last went on
  Bytes incoming_;              // the message that arrives in chunks, as far as it is there

  std::vector<OutgoingFrame> door_frames_, frames_;
  std::vector<Bytes> messages_;
};

}  // namespace shoal::transport
