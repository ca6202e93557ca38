// PeerLinks: messages between links about relays. The coordinator receives them from relays; any other node
// receives them from the coordinator.
#include <utility>

#include "actors/node/links/peer_links.h"
#include "actors/node/links/relay_server.h"

namespace shoal::actors {

void PeerLinks::on_link(transport::PeerId peer, LinkMessage message) {
  std::unique_lock lock(mutex_);
  NodeId node = node_of(peer);
  if (node == kCoordinatorNode) return on_coordinator_link(std::move(message));
  auto* from_child = std::get_if<link::FromChild>(&message);
  if (from_child == nullptr) return on_relay_message(node, std::move(message));
  auto child = tree_.child_of(node, from_child->child);
  if (!child) return send_link(node, link::DropChild{from_child->child, "the coordinator does not know it"});
  lock.unlock();
  hand_on(*child, peer, std::move(from_child->message));
}

void PeerLinks::on_relay_message(NodeId relay, LinkMessage message) {
  if (std::holds_alternative<link::ServeAsRelay>(message)) {  // another coordinator sent it to this one
    send_link(relay, link::RelayFailed{"this node is the coordinator"});
  } else if (const auto* ready = std::get_if<link::RelayReady>(&message)) {
    tree_.serves(relay, ready->address, ready->children_max);
  } else if (const auto* failed = std::get_if<link::RelayFailed>(&message)) {
    tree_.cannot_serve(relay, failed->cause);
  } else if (const auto* up = std::get_if<link::ChildUp>(&message)) {
    child_up(relay, *up);
  } else if (const auto* lost = std::get_if<link::ChildLost>(&message)) {
    auto child = tree_.child_lost(relay, lost->child);
    if (!child) return;
    up_.erase(*child);
    deliver_lost(*child, Status(Code::unavailable, lost->cause));
  }
}

void PeerLinks::child_up(NodeId relay, const link::ChildUp& child) {
  if (events_ == nullptr || !tree_.child_up(relay, child.child, next_node_, child.incarnation)) {
    return send_link(relay, link::DropChild{child.child, "the relay is full"});
  }
  auto through = up_.find(relay);
  transport::Identity identity = through == up_.end() ? transport::Identity() : through->second;
  identity.name = child.name;
  identity.incarnation = child.incarnation;
  up_[next_node_] = identity;
  send_link(next_node_, link::Welcome{});
  deliver_up(next_node_++, identity);
}

void PeerLinks::on_coordinator_link(LinkMessage message) {
  if (const auto* elsewhere = std::get_if<link::UseRelay>(&message)) return go_by(*elsewhere);
  if (std::holds_alternative<link::Welcome>(message)) {
    is_welcome_ = true;
    changed_.notify_all();
  } else if (const auto* serve = std::get_if<link::ServeAsRelay>(&message)) {
    auto followed = up_.find(kCoordinatorNode);
    if (relay_ == nullptr || followed == up_.end()) {
      return send_link(kCoordinatorNode, link::RelayFailed{"this node does not accept other nodes"});
    }
    relay_->open(coordinator_, followed->second, serve->children_max);
  } else if (auto* to = std::get_if<link::ToChild>(&message)) {
    if (relay_ != nullptr) relay_->to_child(to->child, std::move(to->message));
  } else if (const auto* drop = std::get_if<link::DropChild>(&message)) {
    if (relay_ != nullptr) relay_->drop_child(drop->child, Status(Code::refused, drop->cause));
  }
}

// Roles do not notice, unless the relay cannot be reached either.
void PeerLinks::go_by(const link::UseRelay& received) {
  if (!via_.empty()) return;  // only the coordinator itself sends nodes to relays
  drain_coordinator(Status(Code::unavailable, received.address.empty()
                                                  ? received.cause
                                                  : "this node now connects through a relay"));
  connect_not_before_ = 0;
  changed_.notify_all();
  if (!received.address.empty()) {
    via_ = received.address;
    session_to(kCoordinatorNode);
    return;
  }
  coordinator_lost_ = Status(Code::busy, received.cause);
  wait_to_connect(kReconnectFirstMs);
  if (events_ != nullptr && delivered_up_) deliver_lost(kCoordinatorNode, coordinator_lost_);
}

}  // namespace shoal::actors
