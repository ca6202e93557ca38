// PeerLinks: the transport's sessions as roles see them, nodes with an id.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/role.h"
#include "transport/transport.h"

namespace shoal {

inline constexpr uint32_t kReconnectFirstMs = 200;     // doubled after each failure ...
inline constexpr uint32_t kReconnectMostMs = 5'000;    // ... up to this
inline constexpr uint32_t kRefusedPatienceMs = 3'000;  // with a coordinator that refuses this node

// Called from the transport's thread, never concurrently.
class PeerEvents {
 public:
  virtual ~PeerEvents() = default;
  // False: there was no room for it.
  virtual bool received(NodeId from, WireMessage message, size_t encoded_bytes) = 0;
  virtual void peer_up(NodeId node, const Identity& identity) = 0;
  virtual void peer_lost(NodeId node, const Status& why) = 0;
  virtual void peer_refused(const std::string& address, const Status& why) = 0;
};

class PeerLinks final : public TransportHandler {
 public:
  // `coordinator`: the address of its node, "" where it is this one. The session to it is kCoordinatorNode,
  // every other one a number of its own.
  PeerLinks(Transport& transport, std::string coordinator);

  // Once, before which messages of peers are dropped and nothing is told; they are told again, in order, from
  // then on. `events` outlives the transport's stop.
  void serve(PeerEvents& events);

  // Connects to the coordinator, again and again until the deadline. Its identity, with a known generation
  // and epoch, or Code::unavailable, refused or version, naming address and last cause. `give_up` is asked
  // now and then.
  Result<Identity> find_coordinator(uint32_t timeout_ms, const std::function<bool()>& give_up);

  // Any thread: kCoordinatorNode is the coordinator of this epoch, at this address, from now on; an epoch
  // below the last one is ignored. Connects, where that has not failed just now. A session that stands
  // already is told as up again; the one to an earlier coordinator is left without a word.
  void redirect(uint32_t epoch, const std::string& address);
  // Any thread: tells whoever listens there, once, if anybody does.
  void tell(const std::string& address, const WireMessage& message);

  // Any thread; never blocks. What cannot be sent is dropped: roles resend. To a coordinator whose session
  // was lost: connects again, not more often than the back-off allows.
  void send(NodeId to, const WireMessage& message);
  size_t peers_up() const;
  std::vector<std::pair<NodeId, Identity>> peers() const;  // that are up, by their numbers
  uint64_t sends_dropped() const;

  void on_peer_up(PeerId peer, const Identity& identity) override;
  void on_message(PeerId peer, Bytes message) override;
  void on_peer_lost(PeerId peer, const Status& why) override;
  void on_refused(const std::string& address, const Status& why) override;

 private:
  std::optional<PeerId> session_to(NodeId to);
  void leave_coordinator();
  NodeId node_of(PeerId peer);

  Transport& transport_;
  std::string coordinator_;
  uint32_t epoch_ = 0;  // of the coordinator, where known
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  PeerEvents* events_ = nullptr;
  std::map<PeerId, NodeId> nodes_;
  std::map<NodeId, PeerId> sessions_;
  std::map<NodeId, Identity> up_;
  NodeId next_node_ = kFirstPeerNode;
  Status coordinator_lost_;  // why its last session ended
  uint32_t failures_ = 0;    // of connecting to it, since it was last up
  TimeNs connect_not_before_ = 0;
  uint64_t sends_dropped_ = 0;
};

}  // namespace shoal
