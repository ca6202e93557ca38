// Transport: carries messages between nodes. Read this header first. transport/live/ contains the production
// implementation.
//
// A message is a byte string in Cap'n Proto's standard framing (an encoded schema::Message). Both sides check
// its segment table; the receiver checks its contents.
//
// The transport adds connections, the handshake (transport/handshake.h), heartbeats, bounds and
// back-pressure. It neither retries nor reorders. Within one session a message is delivered at most once and
// in order. A lost session loses the messages in transfer; roles send again.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shoal/bytes.h"
#include "shoal/hash.h"
#include "shoal/status.h"

namespace shoal::transport {

inline constexpr size_t kMaxMessageBytes = size_t{256} << 20;        // both sides reject larger ones
inline constexpr size_t kMaxEagerBytes = size_t{32} << 10;           // larger ones use rendezvous
inline constexpr size_t kMaxQueuedBytesPerPeer = size_t{512} << 20;  // beyond it send returns Code::busy
inline constexpr size_t kMaxQueuedMessagesPerPeer = 4096;
inline constexpr size_t kMaxInboundBytes = size_t{1} << 30;  // in transfer at once, over all peers
inline constexpr uint32_t kHeartbeatIntervalMs = 500;
// After so much silence a peer is lost. So a dead or stopped peer is reported within 3 s.
inline constexpr uint32_t kPeerLostAfterMs = 2500;
inline constexpr uint32_t kHandshakeTimeoutMs = 5000;
inline constexpr size_t kMaxPeers = 16384;
static_assert(kMaxMessageBytes <= kMaxQueuedBytesPerPeer);
static_assert(kPeerLostAfterMs > 4 * kHeartbeatIntervalMs);

// One session with one incarnation of a peer. Never reused in a process; a reconnect gets a new id.
using PeerId = uint64_t;

// What a node states about itself in the handshake (schema: Identity).
struct Identity {
  RootId root_id;
  std::string job_id;       // both sides must have the same
  uint32_t generation = 0;  // 0: not known yet. Two known ones must be equal
  uint32_t epoch = 0;       // highest coordinator epoch that the node knows
  Nonce incarnation;        // random, new for each process
  std::string name;         // human-readable: "host:pid"
};

// Called from the transport's one thread, never concurrently; must not block. The handler may call send and
// connect.
class TransportHandler {
 public:
  virtual ~TransportHandler() = default;
  virtual void on_peer_up(PeerId peer, const Identity& identity) = 0;
  virtual void on_message(PeerId peer, Bytes message) = 0;
  // The transport no longer holds `messages` more of the messages that send accepted. Reported in sending
  // order, except that small messages may pass a large one. Messages never reported here end with
  // on_peer_lost.
  virtual void on_sent(PeerId /*peer*/, size_t /*messages*/) {}
  // Called once per session, even if it never came up: connection refused, handshake refused (with its reason
  // and code), peer dead or silent, malformed frame. No more callbacks follow for this peer.
  virtual void on_peer_lost(PeerId peer, const Status& why) = 0;
  // A connection was rejected in the handshake. `why` names the peer if it is known.
  virtual void on_refused(const std::string& /*address*/, const Status& /*why*/) {}
};

struct TransportStats {
  struct Counter {
    uint64_t frames = 0;
    uint64_t bytes = 0;  // payload, both control and bulk, without headers
  };
  // Counts frames that carry messages: one for a message of at most kMaxEagerBytes, several for a larger one
  // (transport/frame.h). Handshakes and heartbeats do not count.
  Counter sent, received;
  Counter sent_eager, sent_rendezvous;
  // sent + received, by the lanes in use: "tcp", "rc_mlx5" and so on
  std::map<std::string, Counter> by_transport;
  uint64_t peers_up = 0, peers_lost = 0, handshakes_rejected = 0, malformed_frames = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;  // the implementation stops

  // Starts to listen, if configured, and to serve connections. `handler` must outlive stop().
  virtual Status start(TransportHandler& handler) = 0;
  // Tries for `drain_ms` to send the queued messages, then closes all sessions, whose peers are sent `why`.
  // No callback follows its return. Must not be called from a callback.
  virtual void stop(uint32_t drain_ms, const Status& why) = 0;
  void stop(uint32_t drain_ms) { stop(drain_ms, Status(Code::unavailable, "the node is stopping")); }

  // The "HOST:PORT" on which it listens, with the actual port if port 0 was requested; "" if it does not
  // listen.
  virtual std::string listen_address() const = 0;

  // Any thread. Returns at once; on_peer_up or on_peer_lost follows. An address that is connected or
  // connecting returns the same PeerId again. Messages may be sent at once; they leave after the handshake.
  virtual PeerId connect(const std::string& address) = 0;
  // Any thread; never blocks. Code::busy: the peer's queue is full. Code::unavailable: the peer is lost.
  // Code::too_large. Code::invalid_argument: the bytes are not framed as a message.
  virtual Status send(PeerId peer, Bytes message) = 0;
  // Any thread. False: send would now return Code::busy for a message of so many bytes. For callers that
  // would rather wait than encode the message.
  virtual bool has_room(PeerId peer, size_t bytes) const = 0;
  // Any thread. Ends a session, for example after the peer broke the protocol.
  virtual void disconnect(PeerId peer, const Status& why) = 0;

  // Any thread. Sets the values that later handshakes contain; 0 keeps the current value.
  virtual void set_generation(uint32_t generation, uint32_t epoch) = 0;
  virtual TransportStats stats() const = 0;
};

}  // namespace shoal::transport
