// SharingLinks: sessions between nodes that send each other chunks of what they load
// (docs/reference/protocol.md, "A shared load"). They have a transport of their own, whose listener opens
// when the Loader first requests its address. Any node that has the job's token may connect. It may send only
// messages between Loaders.
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

#include "actors/node/watch/rejection_lines.h"
#include "actors/role.h"
#include "transport/live/make_transport.h"
#include "transport/transport.h"

namespace shoal::actors {

inline constexpr size_t kMaxSharingSessions = 512;  // in both directions together
inline constexpr uint32_t kSharingIdleMs = 60'000;  // a session without messages for this long is closed
// Bound of the messages held for one session until the transport takes them; further ones are dropped. A
// Loader requests less than this from all peers together (its window). Sessions hold references to chunks,
// not copies.
inline constexpr size_t kMaxHeldForSharer = size_t{256} << 20;
inline constexpr size_t kMaxHeldMessagesForSharer = 65'536;
inline constexpr size_t kMaxChunkMessageBytes = kChunkBytes + 4096;       // encoded
inline constexpr size_t kMaxQueuedForSharer = 2 * kMaxChunkMessageBytes;  // in the transport, as copies
inline constexpr size_t kMaxInboundShared = 16 * kMaxChunkMessageBytes;   // being received at one time
static_assert(kMaxChunkMessageBytes <= transport::kMaxMessageBytes);

struct SharingCounts {
  uint64_t sessions = 0;                     // now
  uint64_t chunks_sent = 0, bytes_sent = 0;  // chunks that the transport took, and their bytes
  uint64_t chunks_received = 0, bytes_received = 0;
  uint64_t dropped = 0;  // messages that could not be sent, or had no room here
};

class SharingLinks final : private transport::TransportHandler {
 public:
  struct Settings {
    transport::TransportOptions transport;  // identity with generation, and token; the rest is set here
    // The host part of the listening address; for "any address", others receive `host_name`. May block.
    std::function<Result<std::string>()> own_host;
    std::string host_name;
    // Peers of this node's other transports, and its trainers, for the number of descriptors.
    uint64_t other_peers = 1;
    uint64_t trainers = 0;
    uint32_t idle_ms = kSharingIdleMs;
    std::function<void(const std::string& line)> log;   // any thread
    std::function<void(const std::string& line)> warn;  // any thread; not set: as log
    // The message that send() took with this id is no longer held: the transport has sent it, or it was
    // dropped. Called once for each id, except for messages that are held at stop(). Any thread; must not
    // block, and must not call SharingLinks.
    std::function<void(SendId id)> on_left;
  };
  // False: there is no room for the message. Called on the transport's thread; must not block.
  using Receive = std::function<bool(NodeId from, WireMessage message, size_t encoded_bytes)>;

  SharingLinks(Settings settings, Receive receive);
  ~SharingLinks() override;  // calls stop

  // Carries out operation::ListenToPeers: returns HOST:PORT, the same each time. Any thread; blocks while the
  // transport opens.
  Result<std::string> listen();

  // Any thread; neither blocks. They drop what cannot be sent, and everything before listen() has succeeded.
  void send_to(const std::string& address, const WireMessage& message);
  void send(NodeId to, const WireMessage& message, SendId id = 0);
  // Drops the messages to that node that have not left. The node may connect again, with another id.
  void end_session(NodeId node, const Status& why);

  // Call it regularly.
  void close_idle();
  // After it returns, nothing is received or sent. `drain_ms`: as in Transport::stop.
  void stop(uint32_t drain_ms);
  SharingCounts counts() const;

 private:
  struct Session {
    NodeId node = 0;
    std::string name;
    TimeNs last_message = 0;
    bool is_ending = false;
    std::deque<std::pair<WireMessage, SendId>> held;
    size_t held_bytes = 0;
    // Messages that the transport has taken and not sent yet; 0: without an id.
    std::deque<SendId> in_transport;
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
  void report_left(SendId id) const;
  void drop_held(Session& session);
  void end(transport::PeerId peer, Session& session, const Status& why);

  const Settings settings_;
  const Receive receive_;
  RejectionLines rejections_{"the listener for shared loads"};
  std::mutex opening_;  // held while the transport opens; lock it before mutex_
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<transport::Transport> transport_;  // set once, until stop
  std::string address_;
  std::map<transport::PeerId, Session> sessions_;
  std::map<NodeId, transport::PeerId> peers_;
  NodeId next_node_ = kFirstSharer;
  SharingCounts counts_;
  bool ends_ = false;
  std::thread sender_;
};

}  // namespace shoal::actors
