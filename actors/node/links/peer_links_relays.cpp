// PeerLinks: messages between links about relays. The coordinator receives them from relays; any other node
// receives them from the coordinator.
#include <utility>

#include "actors/node/links/peer_links.h"
#include "actors/node/links/relay_server.h"
#include "base/visit.h"

namespace shoal::actors {

void PeerLinks::on_link(transport::PeerId peer, LinkMessage message) {
  std::unique_lock lock(mutex_);
  NodeId node = node_of(peer);
  if (node == kCoordinatorNode) return on_coordinator_link(std::move(message));
  auto* from_child = std::get_if<link::FromChild>(&message);
  if (from_child == nullptr) return on_relay_message(node, message);
  auto child = tree_.child_of(node, from_child->child);
  if (!child) return send_link(node, link::DropChild{from_child->child, "the coordinator does not know it"});
  if (on_status_of_child(*child, from_child->message)) return;
  lock.unlock();
  hand_on(*child, peer, std::move(from_child->message));
}

// False: it is another message. A child sends no other messages of links to the coordinator.
bool PeerLinks::on_status_of_child(NodeId child, const Bytes& message) {
  auto read = decode_link(message);
  if (!read.ok() || !*read) return false;
  const bool is_status = std::holds_alternative<link::JobStatusRequest>(**read) ||
                         std::holds_alternative<link::HostStatusReport>(**read);
  if (is_status) on_relay_message(child, **read);
  return is_status;
}

// `relay`: a relay, or any node that sends one of the messages of `shoal status`.
void PeerLinks::on_relay_message(NodeId relay, const LinkMessage& any) {
  std::visit(
      base::Overloaded{
          // Another coordinator sent it to this one.
          [&](const link::ServeAsRelay&) {
            send_link(relay, link::RelayFailed{"this node is the coordinator"});
          },
          [&](const link::RelayReady& ready) { tree_.serves(relay, ready.address, ready.children_max); },
          [&](const link::RelayFailed& failed) { tree_.cannot_serve(relay, failed.cause); },
          [&](const link::ChildUp& up) { child_up(relay, up); },
          [&](const link::ChildLost& lost) { child_lost(relay, lost); },
          [&](const link::JobStatusRequest&) {
            if (status_ != nullptr) status_->job_status_requested(relay);
          },
          [&](const link::HostStatusReport& report) {
            if (status_ != nullptr) status_->host_status_received(relay, report.status);
          },
          // Only a coordinator sends these; on_link handles FromChild.
          [](const base::OneOf<link::Welcome, link::UseRelay, link::ToChild, link::DropChild, link::FromChild,
                               link::JobStatusTable, link::HostStatusRequest> auto&) {}},
      any);
}

void PeerLinks::child_lost(NodeId relay, const link::ChildLost& lost) {
  auto child = tree_.child_lost(relay, lost.child);
  if (!child) return;
  up_.erase(*child);
  deliver_lost(*child, Status(Code::unavailable, lost.cause));
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

void PeerLinks::on_coordinator_link(LinkMessage any) {
  std::visit(
      base::Overloaded{
          [&](const link::UseRelay& elsewhere) { go_by(elsewhere); },
          [&](const link::Welcome&) {
            is_welcome_ = true;
            changed_.notify_all();
          },
          [&](const link::ServeAsRelay& serve) {
            auto followed = up_.find(kCoordinatorNode);
            if (relay_ == nullptr || followed == up_.end()) {
              return send_link(kCoordinatorNode, link::RelayFailed{"this node does not accept other nodes"});
            }
            relay_->open(coordinator_, followed->second, serve.children_max);
          },
          [&](link::ToChild& to) {
            if (relay_ != nullptr) relay_->to_child(to.child, std::move(to.message));
          },
          [&](const link::DropChild& drop) {
            // It shall come to the coordinator again, and a rejection may be final (find_coordinator).
            if (relay_ != nullptr) relay_->drop_child(drop.child, Status(Code::unavailable, drop.cause));
          },
          [&](const link::HostStatusRequest&) {
            if (status_ != nullptr) status_->host_status_requested();
          },
          [&](link::JobStatusTable& table) {
            if (status_ != nullptr) status_->job_status_received(std::move(table.status));
          },
          // Only a relay or another node sends these.
          [](const base::OneOf<link::RelayReady, link::RelayFailed, link::ChildUp, link::ChildLost,
                               link::FromChild, link::JobStatusRequest, link::HostStatusReport> auto&) {}},
      any);
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
