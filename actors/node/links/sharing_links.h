// SharingLinks: sessions between nodes that pass on to each other what they load (docs/reference/protocol.md,
// "A shared load"). A transport of their own, with a listener, opened when the Loader first asks for its
// address; who knows the job's token may come, and may say nothing but what Loaders say to each other.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "actors/node/watch/refusal_lines.h"
#include "actors/role.h"
#include "transport/live/make_transport.h"
#include "transport/transport.h"

namespace shoal::actors {

inline constexpr size_t kMaxSharingSessions = 512;  // both ways, all together
inline constexpr uint32_t kSharingIdleMs = 60'000;  // a session without a message for that long is closed
// Held for one session until the transport takes it; more is dropped. A Loader asks all others together for
// less than that (its window). Chunks are held, not copies.
inline constexpr size_t kMaxHeldForSharer = size_t{256} << 20;
inline constexpr size_t kMaxHeldMessagesForSharer = 65'536;
inline constexpr size_t kMaxChunkMessageBytes = kChunkBytes + 4096;       // encoded
inline constexpr size_t kMaxQueuedForSharer = 2 * kMaxChunkMessageBytes;  // in the transport, as copies
inline constexpr size_t kMaxInboundShared = 16 * kMaxChunkMessageBytes;   // being received at once
static_assert(kMaxChunkMessageBytes <= transport::kMaxMessageBytes);

struct SharingCounts {
  uint64_t sessions = 0;                     // now
  uint64_t chunks_sent = 0, bytes_sent = 0;  // chunks that the transport took, and their bytes
  uint64_t chunks_received = 0, bytes_received = 0;
  uint64_t dropped = 0;  // messages that could not be sent, or found no room here
};

class SharingLinks final : private transport::TransportHandler {
 public:
  struct Settings {
    transport::TransportOptions transport;  // identity, with its generation, and token; the rest is set here
    // The host part of the address to listen at; "any address" is told as `host_name`. May block.
    std::function<Result<std::string>()> own_host;
    std::string host_name;
    uint64_t other_peers = 1;  // of this node's other transports, and trainers, for the count of descriptors
    uint64_t trainers = 0;
    uint32_t idle_ms = kSharingIdleMs;
    std::function<void(const std::string& line)> log;   // any thread
    std::function<void(const std::string& line)> warn;  // any thread; not set: as log
    // What was sent with that id, by send(), is held here no more: the transport has sent it, or it was
    // dropped. Once, but for what is there at stop. Any thread; must neither block nor call in.
    std::function<void(SendId id)> has_left;
  };
  // False: there was no room for it. On the transport's thread; must not block.
  using Receive = std::function<bool(NodeId from, WireMessage message, size_t encoded_bytes)>;

  SharingLinks(Settings settings, Receive receive);
  ~SharingLinks() override;  // stops

  // operation::ListenToPeers: HOST:PORT, the same each time. Any thread; blocks while the transport is
  // opened.
  Result<std::string> listen();

  // Any thread; neither blocks. What cannot be sent is dropped; so is all before listen() has succeeded.
  void send_to(const std::string& address, const WireMessage& message);
  void send(NodeId to, const WireMessage& message, SendId id = 0);
  // What is for that node and has not left is dropped. It may come again, as another one.
  void end_session(NodeId node, const Status& why);

  // Now and then.
  void close_idle();
  // Nothing is received or sent any more once it returns. `drain_ms`: as Transport::stop.
  void stop(uint32_t drain_ms);
  SharingCounts counts() const;
  transport::TransportStats transport_stats() const;

 private:
  struct Session {
    NodeId node = 0;
    std::string name;
    TimeNs last_message = 0;
    bool is_ending = false;
    std::deque<std::pair<WireMessage, SendId>> held;
    size_t held_bytes = 0;
    std::deque<SendId> in_transport;  // what the transport has taken and not sent yet; 0: without an id
  };

  void on_peer_up(transport::PeerId peer, const transport::Identity& identity) override;
  void on_message(transport::PeerId peer, Bytes message) override;
  void on_sent(transport::PeerId peer, size_t messages) override;
  void on_peer_lost(transport::PeerId peer, const Status& why) override;
  void on_refused(const std::string& address, const Status& why) override;

  Result<std::unique_ptr<transport::Transport>> open();
  void run();
  bool pass_on(std::unique_lock<std::mutex>& lock, transport::PeerId peer);
  Session& session(transport::PeerId peer);
  void hold(transport::PeerId peer, const WireMessage& message, SendId id);
  void tell_left(SendId id) const;
  void drop_held(Session& session);
  void end(transport::PeerId peer, Session& session, const Status& why);

  const Settings settings_;
  const Receive receive_;
  RefusalLines refusals_{"the door for shared loads"};
  std::mutex opening_;  // held while the transport is opened; before mutex_
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<transport::Transport> transport_;  // set once, until stop
  std::string address_;
  std::map<transport::PeerId, Session> sessions_;
  std::map<NodeId, transport::PeerId> peers_;
  NodeId next_node_ = kFirstSharer;
  SharingCounts counts_;
  transport::TransportStats last_stats_;  // of the transport that was here
  bool ends_ = false;
  std::thread sender_;
};

}  // namespace shoal::actors
