// PeerLinks: presents the sessions of the transport to roles, as nodes with ids. In a job with more nodes
// than may connect to the coordinator, it reaches some through a relay (actors/node/links/relay_tree.h).
// Roles see no difference.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/messages/link_messages.h"
#include "actors/node/links/relay_tree.h"
#include "actors/node/links/status_events.h"
#include "actors/node/links/unreachable_notice.h"
#include "actors/role.h"
#include "transport/transport.h"

namespace shoal::actors {

// Why a node ends its session with a coordinator that has no epoch yet, and so drops all messages. It
// connects again soon.
inline constexpr std::string_view kCoordinatorNotReady = "the coordinator is not ready yet";

inline constexpr uint32_t kReconnectFirstMs = 200;     // doubled after each failure ...
inline constexpr uint32_t kReconnectMostMs = 5'000;    // ... up to this
inline constexpr uint32_t kRefusedPatienceMs = 3'000;  // time to retry a coordinator that rejects this node

// Called on the transport's thread, never concurrently.
class PeerEvents {
 public:
  virtual ~PeerEvents() = default;
  // False: there is no room for the message.
  virtual bool received(NodeId from, WireMessage message, size_t encoded_bytes) = 0;
  virtual void peer_up(NodeId node, const transport::Identity& identity) = 0;
  virtual void peer_lost(NodeId node, const Status& why) = 0;
  virtual void peer_refused(const std::string& address, const Status& why) = 0;
};

class RelayServer;

class PeerLinks final : public transport::TransportHandler {
 public:
  // `coordinator`: the address of its node; "": this node. The session with it is kCoordinatorNode; every
  // other session gets an id of its own. At the coordinator, `direct_max` nodes have sessions with it, and
  // the others use relays.
  PeerLinks(transport::Transport& transport, std::string coordinator,
            size_t direct_max = kDefaultDirectNodes);

  // Call once. Before that, messages of peers are dropped and no event is delivered. Then all sessions that
  // are up are delivered, in order. `events` outlives the stop of the transport.
  void serve(PeerEvents& events);

  // The server for requests of the coordinator to be a relay; null: none. Outlives its use here.
  void set_relay(RelayServer* relay);
  // For the messages of `shoal status`; before serve(). Outlives its use here.
  void set_status(StatusEvents* status);
  // Any thread; never blocks. Sends one of those messages. Drops what cannot be sent.
  void send_status(NodeId to, const LinkMessage& message);
  // Sends a message of the relay here to the coordinator. Code::busy: no room now; other errors: there is no
  // session.
  Status send_up(Bytes message);

  // Connects to the coordinator, and retries until the deadline. Returns its identity, with a known
  // generation and epoch; or Code::unavailable, refused or version, with the address and the last cause.
  // Retries a coordinator that rejects this node for at most refused_patience_ms. Calls `give_up` regularly.
  Result<transport::Identity> find_coordinator(uint32_t timeout_ms, uint32_t refused_patience_ms,
                                               const std::function<bool()>& give_up);

  // Any thread. From now on kCoordinatorNode is the coordinator of this epoch at this address; an epoch below
  // the last one is ignored. Connects, unless that has just failed. Delivers an existing session with it as
  // up again. Leaves the session with an earlier coordinator without a message.
  void redirect(uint32_t epoch, const std::string& address);
  // Any thread. Sends once to the node that listens at `address`, if there is one, and then ends the session.
  // No events are delivered of it, and it takes no node's place.
  void notify(const std::string& address, const WireMessage& message);

  // Any thread; never blocks. Drops what cannot be sent: roles resend. If the session with the coordinator is
  // lost, connects again, within the back-off.
  void send(NodeId to, const WireMessage& message);
  // Call it regularly: connects to a lost coordinator if no send does.
  void look_for_coordinator();
  std::string coordinator() const;  // its address; "": this node
  uint32_t epoch() const;           // of another node that coordinates, or did; 0: none is known
  // Call it often: returns a line for the log soon after the coordinator becomes unreachable, then less and
  // less often.
  std::optional<std::string> unreachable_line();
  size_t peers_up() const;
  std::vector<std::pair<NodeId, transport::Identity>> peers() const;  // that are up, by id
  uint64_t sends_dropped() const;
  struct Reach {  // at the coordinator: nodes with a session of their own, and through relays
    size_t direct_most = 0, relayed_most = 0;  // at one time, since the start
  };
  Reach reach() const;

  void on_peer_up(transport::PeerId peer, const transport::Identity& identity) override;
  void on_message(transport::PeerId peer, Bytes message) override;
  void on_sent(transport::PeerId peer, size_t messages) override;
  void on_peer_lost(transport::PeerId peer, const Status& why) override;
  void on_refused(const std::string& address, const Status& why) override;

 private:
  std::optional<transport::PeerId> session_to(NodeId to);
  void wait_to_connect(uint32_t wait_ms);
  void drain_coordinator(const Status& why);
  NodeId node_of(transport::PeerId peer);
  void lose(transport::PeerId peer, const Status& why);
  void admit(NodeId node, const transport::Identity& identity);
  void deliver_up(NodeId node, const transport::Identity& identity);
  void deliver_lost(NodeId node, const Status& why);
  void send_link(NodeId to, const LinkMessage& message);
  void on_link(transport::PeerId peer, LinkMessage message);
  void on_relay_message(NodeId relay, const LinkMessage& any);
  void on_coordinator_link(LinkMessage any);
  bool on_status_of_child(NodeId child, const Bytes& message);
  void go_by(const link::UseRelay& body);
  void child_up(NodeId relay, const link::ChildUp& child);
  void child_lost(NodeId relay, const link::ChildLost& lost);
  void hand_on(NodeId from, transport::PeerId session, Bytes message);

  transport::Transport& transport_;
  const bool coordinates_;
  std::string coordinator_;
  std::string via_;            // address of the relay that this node uses; "": none
  bool is_welcome_ = false;    // the session with the coordinator is accepted as this node's place
  bool delivered_up_ = false;  // the coordinator was delivered as up, and not as lost since
  uint32_t epoch_ = 0;         // of the coordinator, if known
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  PeerEvents* events_ = nullptr;
  RelayServer* relay_ = nullptr;
  StatusEvents* status_ = nullptr;
  RelayTree tree_;
  Reach most_;
  // Nodes that were sent to a relay and are still connected.
  std::map<NodeId, transport::Identity> elsewhere_;
  std::set<transport::PeerId> notices_;  // sessions of notify()
  std::map<transport::PeerId, NodeId> nodes_;
  std::map<NodeId, transport::PeerId> sessions_;
  std::map<NodeId, transport::Identity> up_;
  NodeId next_node_ = kFirstPeerNode;
  Status coordinator_lost_;  // why its last session ended
  uint32_t failures_ = 0;    // of connecting to it, since it was last up
  TimeNs connect_not_before_ = 0;
  uint64_t sends_dropped_ = 0;
  UnreachableNotice notice_;
};

}  // namespace shoal::actors
