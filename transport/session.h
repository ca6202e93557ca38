// One session with one peer: handshake, frames, order, heartbeats and silence, as a state machine without
// I/O. The engine (transport/live/) passes it received frames and the time, and sends its outgoing frames.
//
// A session begins with the handshake, in which only small handshake frames are accepted, so that a peer
// without the token gets no further. Once both peers are proven, the connector attaches. All later frames use
// the data connection: the same TCP connection, or a UCX connection if the listener names a port.
// transport/session_state.h has the states.
//
// Times are milliseconds of a LivedClock (transport/lived_clock.h). Only std::bad_alloc may be thrown.
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
#include "transport/session_state.h"

namespace shoal::transport {

struct SessionSettings {
  Identity self;
  std::shared_ptr<const Bytes> token;
  TransportLimits limits;
};

class Session {
 public:
  // `remote` names the peer in errors: the address that was connected to, or the peer's own. A connector's
  // hello frame is available from take_handshake_frames at once.
  Session(HandshakeRole role, const SessionSettings& settings, const HandshakeNonce& nonce,
          std::string remote, uint64_t now_ms);

  SessionState state() const { return state_.state(); }
  bool is_up() const { return state_.is(SessionState::up); }
  bool has_ended() const {
    return state_.is_one_of(SessionState::lost, SessionState::refused, SessionState::failed);
  }
  bool was_up() const { return state_.is_one_of(SessionState::up, SessionState::lost); }
  bool is_receiving() const { return is_fetching_ || !incoming_.empty(); }  // a message in chunks
  const Identity& peer() const { return handshake_.peer(); }                // valid once the session was up
  const std::string& remote() const { return remote_; }
  const Status& end_reason() const { return end_reason_; }               // not OK once ended
  bool was_refused() const { return state_.is(SessionState::refused); }  // by either peer

  // Processes a handshake frame. A payload above kMaxHandshakeBytes may be omitted.
  void on_handshake_frame(ByteView header, ByteView payload, uint64_t now_ms);
  // True on a listener that is proven and waits for offer_data_port. Port 0: the session stays on its
  // connection.
  bool wants_data_port() const { return state_.is(SessionState::choosing_port); }
  void offer_data_port(uint16_t port);
  // The port to which a welcomed connector must connect and attach. 0: it attaches on the existing
  // connection.
  uint16_t data_port() const { return handshake_.data_port(); }
  // The tag that identifies the frames of this session's peer; 0 before attaching.
  uint64_t incoming_tag() const { return incoming_tag_; }

  // Processes a whole frame from the data connection. True if it carried a message that the session accepted.
  bool on_frame(ByteView header, ByteView payload, uint64_t now_ms);

  // Processes the announcement of a chunk. True: fetch `payload_bytes` of it into fetch_buffer(), then call
  // on_fetched. False: drop the chunk; the session may have ended. Allocates nothing before fetch_buffer.
  bool on_announced(ByteView header, uint64_t payload_bytes, uint64_t now_ms);
  // Size of the message whose chunk was announced last. Reserve all of it before you fetch its first chunk.
  size_t announced_message_bytes() const { return static_cast<size_t>(announced_.message_bytes); }
  bool announced_first_chunk() const { return announced_.offset == 0; }
  // Empty if there is not enough memory; the session has then ended.
  MutableByteView fetch_buffer(uint64_t now_ms);
  void on_fetched(uint64_t now_ms);

  // Part of a frame arrived on the data connection, or this node does not read what is there. Either counts
  // as a sign of life.
  void on_received(uint64_t now_ms) {
    if (is_up()) last_received_ms_ = now_ms;
  }
  // The connection broke, was rejected (Code::refused), or cannot be made. No more frames can be sent.
  void on_link_lost(const Status& why);
  // Ends the session and sends the peer the reason. Does nothing if the session has ended.
  void end(const Status& why);

  // The handshake's time begins only now. For a connector that did not know the address before.
  void begin(uint64_t now_ms) {
    if (is_beginning()) began_ms_ = now_ms;
  }

  // Handles heartbeats, silence and the handshake's deadline. Call it when next_due_ms() is reached.
  void tick(uint64_t now_ms);
  uint64_t next_due_ms() const;

  // Frames to send now: take_handshake_frames in the handshake, then take_frames on the data connection
  // before any message. Frames that remain after the session has ended contain the reason.
  std::vector<OutgoingFrame> take_handshake_frames();
  std::vector<OutgoingFrame> take_frames();
  bool has_handshake_frames() const { return !handshake_frames_.empty(); }
  bool has_frames() const { return !frames_.empty(); }
  // Messages received since the last call, in order.
  std::vector<Bytes> take_messages();
  uint64_t take_malformed_frames();

  // The header of the next frame of the message being sent. `offset + bytes == message_bytes` marks the last
  // frame. Only while up.
  FrameHeaderBytes seal(size_t message_bytes, size_t offset, size_t bytes, bool chunk);
  void on_sent(uint64_t now_ms) { last_sent_ms_ = now_ms; }

 private:
  void on_handshake(ByteView payload);
  void on_proven();
  bool is_stalled(uint64_t now_ms) const;
  Status accept_frame(const FrameHeader& header, ByteView payload) const;
  Status check_order(const FrameHeader& header) const;
  void push_frame(FrameKind kind, Bytes payload);
  // Neither up nor ended.
  bool is_beginning() const { return !was_up() && !has_ended(); }
  // Both peers are proven, and the session is not up yet.
  bool awaits_connection() const {
    return state_.is_one_of(SessionState::choosing_port, SessionState::attaching);
  }
  void finish(SessionTrigger trigger, const Status& why);

  HandshakeRole role_;
  TransportLimits limits_;
  Handshake handshake_;
  std::string remote_;
  SessionMachine state_{SessionState::handshaking};
  Status end_reason_;
  uint64_t malformed_frames_ = 0;

  uint64_t began_ms_, last_received_ms_, last_sent_ms_;
  uint64_t outgoing_tag_ = 0, incoming_tag_ = 0;
  uint64_t next_out_ = 0, next_in_ = 0;

  FrameHeader announced_;
  bool is_fetching_ = false;
  bool has_turn_ = false;       // memory for the incoming message is reserved
  uint64_t progressed_ms_ = 0;  // when it last made progress
  Bytes incoming_;              // the received part of a message in chunks

  std::vector<OutgoingFrame> handshake_frames_, frames_;
  std::vector<Bytes> messages_;
};

}  // namespace shoal::transport
