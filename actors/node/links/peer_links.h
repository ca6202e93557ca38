// PeerLinks: the transport's sessions as roles see them, nodes with an id. Where there are more nodes than
// connect to the coordinator, some of them are known by way of a relay (actors/node/links/relay_tree.h):
// roles see no difference.
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

#include "actors/messages/link_messages.h"
#include "actors/node/links/relay_tree.h"
#include "actors/node/links/unreachable_notice.h"
#include "actors/role.h"
#include "transport/transport.h"

namespace shoal::actors {

inline constexpr uint32_t kReconnectFirstMs = 200;     // doubled after each failure ...
inline constexpr uint32_t kReconnectMostMs = 5'000;    // ... up to this
inline constexpr uint32_t kRefusedPatienceMs = 3'000;  // with a coordinator that refuses this node

// Called from the transport's thread, never concurrently.
class PeerEvents {
 public:
  virtual ~PeerEvents() = default;
  // False: there was no room for it.
  virtual bool received(NodeId from, WireMessage message, size_t encoded_bytes) = 0;
  virtual void peer_up(NodeId node, const transport::Identity& identity) = 0;
  virtual void peer_lost(NodeId node, const Status& why) = 0;
  virtual void peer_refused(const std::string& address, const Status& why) = 0;
};

class RelayServer;

class PeerLinks final : public transport::TransportHandler {
 public:
  // `coordinator`: the address of its node, "" where it is this one. The session to it is kCoordinatorNode,
  // every other one a number of its own. At the coordinator, `direct_max` nodes have sessions with it, and
  // the rest goes by way of relays.
  PeerLinks(transport::Transport& transport, std::string coordinator,
            size_t direct_max = kDefaultDirectNodes);

  // Once, before which messages of peers are dropped and nothing is told; they are told again, in order, from
  // then on. `events` outlives the transport's stop.
  void serve(PeerEvents& events);

  // What serves when the coordinator asks this node to be a relay; null: nothing does, or does any longer.
  // Outlives its use here.
  void set_relay(RelayServer* relay);
  // To the coordinator, of the relay here. Code::busy: no room now; other errors: there is no session.
  Status send_up(Bytes message);

  // Connects to the coordinator, again and again until the deadline. Its identity, with a known generation
  // and epoch, or Code::unavailable, refused or version, naming address and last cause. `give_up` is asked
  // now and then.
  Result<transport::Identity> find_coordinator(uint32_t timeout_ms, const std::function<bool()>& give_up);

  // Any thread: kCoordinatorNode is the coordinator of this epoch, at this address, from now on; an epoch
  // below the last one is ignored. Connects, where that has not failed just now. A session that stands
  // already is told as up again; the one to an earlier coordinator is left without a word.
  void redirect(uint32_t epoch, const std::string& address);
  // Any thread: tells whoever listens there, once, if anybody does.
  void tell(const std::string& address, const WireMessage& message);

  // Any thread; never blocks. What cannot be sent is dropped: roles resend. To a coordinator whose session
  // was lost: connects again, not more often than the back-off allows.
  void send(NodeId to, const WireMessage& message);
  // Now and then: connects to a coordinator that was lost, where nothing else would soon.
  void look_for_coordinator();
  std::string coordinator() const;  // its address, "" where it is this node
  // Asked often: a line for the log, soon after the coordinator cannot be reached, then less and less often.
  std::optional<std::string> unreachable_line();
  size_t peers_up() const;
  std::vector<std::pair<NodeId, transport::Identity>> peers() const;  // that are up, by their numbers
  uint64_t sends_dropped() const;
  struct Reach {  // of the coordinator: nodes with a session of their own, and by way of relays
    size_t direct = 0, relayed = 0;
    size_t direct_most = 0, relayed_most = 0;  // at once, since the start
  };
  Reach reach() const;

  void on_peer_up(transport::PeerId peer, const transport::Identity& identity) override;
  void on_message(transport::PeerId peer, Bytes message) override;
  void on_peer_lost(transport::PeerId peer, const Status& why) override;
  void on_refused(const std::string& address, const Status& why) override;

 private:
  std::optional<transport::PeerId> session_to(NodeId to);
  void wait_to_connect(uint32_t wait_ms);
  void leave_coordinator(const Status& why);
  NodeId node_of(transport::PeerId peer);
  void admit(NodeId node, const transport::Identity& identity);
  void tell_up(NodeId node, const transport::Identity& identity);
  void tell_lost(NodeId node, const Status& why);
  void send_link(NodeId to, const LinkMessage& message);
  void on_link(transport::PeerId peer, LinkMessage message);
  void on_relay_word(NodeId relay, LinkMessage message);
  void on_coordinator_word(LinkMessage message);
  void go_by(const link::GoBy& said);
  void child_came(NodeId relay, const link::ChildUp& child);
  void hand_on(NodeId from, transport::PeerId session, Bytes message);

  transport::Transport& transport_;
  const bool coordinates_;
  std::string coordinator_;
  std::string via_;          // the relay's address, where this node was sent to one
  bool is_welcome_ = false;  // the session with the coordinator is this node's place
  bool told_up_ = false;     // the coordinator, to `events_`, and not as lost since
  uint32_t epoch_ = 0;       // of the coordinator, where known
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  PeerEvents* events_ = nullptr;
  RelayServer* relay_ = nullptr;
  RelayTree tree_;
  Reach most_;
  std::map<NodeId, transport::Identity> elsewhere_;  // was told to go by way of a relay, and has not left yet
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
