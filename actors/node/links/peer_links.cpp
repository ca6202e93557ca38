#include "actors/node/links/peer_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "actors/node/links/relay_server.h"
#include "base/clock.h"
#include "base/host_port.h"

namespace shoal::actors {

namespace {

constexpr std::chrono::milliseconds kWaitTick{50};

TimeNs back_off(uint32_t failures) {
  uint64_t wait_ms = uint64_t{kReconnectFirstMs} << std::min(failures, 16u);
  return static_cast<TimeNs>(std::min<uint64_t>(wait_ms, kReconnectMostMs)) * kMillisecond;
}

}  // namespace

PeerLinks::PeerLinks(transport::Transport& transport, std::string coordinator, size_t direct_max)
    : transport_(transport),
      coordinates_(coordinator.empty()),
      coordinator_(std::move(coordinator)),
      tree_(direct_max) {}

void PeerLinks::serve(PeerEvents& events) {
  std::lock_guard lock(mutex_);
  events_ = &events;
  const std::map<NodeId, transport::Identity> up = std::exchange(up_, {});
  for (const auto& [node, identity] : up) admit(node, identity);
}

void PeerLinks::set_relay(RelayServer* relay) {
  std::lock_guard lock(mutex_);
  relay_ = relay;
}

void PeerLinks::set_status(StatusEvents* status) {
  std::lock_guard lock(mutex_);
  status_ = status;
}

void PeerLinks::send_status(NodeId to, const LinkMessage& message) {
  std::lock_guard lock(mutex_);
  send_link(to, message);
}

Result<transport::Identity> PeerLinks::find_coordinator(uint32_t timeout_ms, uint32_t refused_patience_ms,
                                                        const std::function<bool()>& give_up) {
  TimeNs begun = base::steady_now_ns(), deadline = begun + TimeNs{timeout_ms} * kMillisecond;
  std::unique_lock lock(mutex_);
  while (true) {
    auto up = up_.find(kCoordinatorNode);
    if (up != up_.end() && up->second.epoch != 0 && is_welcome_) return up->second;
    if (up != up_.end() && up->second.epoch == 0) {  // it listens, but has not claimed its epoch yet
      transport::PeerId peer = sessions_.at(kCoordinatorNode);
      Status not_ready(Code::unavailable, std::string(kCoordinatorNotReady));
      transport_.disconnect(peer, not_ready);
      lose(peer, not_ready);
    }
    // A rejection is usually final. It is not if an earlier job's coordinator is about to end.
    bool is_refused = coordinator_lost_.code() == Code::refused || coordinator_lost_.code() == Code::version;
    bool is_over =
        base::steady_now_ns() >= deadline ||
        (is_refused && base::steady_now_ns() >= begun + TimeNs{refused_patience_ms} * kMillisecond);
    lock.unlock();
    is_over = give_up() || is_over;
    lock.lock();
    if (is_over) {
      std::string cause = coordinator_lost_.ok() ? "no answer" : coordinator_lost_.message();
      return Status(is_refused ? coordinator_lost_.code() : Code::unavailable,
                    fmt::format("no coordinator at {} within {} ms: {}", coordinator_,
                                (base::steady_now_ns() - begun) / kMillisecond, cause));
    }
    session_to(kCoordinatorNode);
    changed_.wait_for(lock, kWaitTick);
  }
}

// Call with the lock held.
std::optional<transport::PeerId> PeerLinks::session_to(NodeId to) {
  auto it = sessions_.find(to);
  if (it != sessions_.end()) return it->second;
  if (to != kCoordinatorNode || coordinator_.empty() || base::steady_now_ns() < connect_not_before_)
    return std::nullopt;
  transport::PeerId peer = transport_.connect(via_.empty() ? coordinator_ : via_);
  sessions_[kCoordinatorNode] = peer;
  nodes_[peer] = kCoordinatorNode;
  return peer;
}

void PeerLinks::wait_to_connect(uint32_t wait_ms) {
  connect_not_before_ = base::steady_now_ns() + TimeNs{wait_ms} * kMillisecond;
}

// Call with the lock held. Later messages of the session count as those of a stranger.
void PeerLinks::drain_coordinator(const Status& why) {
  if (relay_ != nullptr) relay_->close();
  via_.clear();
  is_welcome_ = false;
  auto it = sessions_.find(kCoordinatorNode);
  if (it == sessions_.end()) return;
  transport_.disconnect(it->second, why);
  nodes_.erase(it->second);
  sessions_.erase(it);
  up_.erase(kCoordinatorNode);
}

void PeerLinks::redirect(uint32_t epoch, const std::string& address) {
  std::lock_guard lock(mutex_);
  if (epoch < epoch_ || !base::parse_host_port(address).ok()) return;
  auto up = up_.find(kCoordinatorNode);
  bool exists = up != up_.end() && up->second.epoch >= epoch;
  if (!exists && (epoch > epoch_ || address != coordinator_)) {
    drain_coordinator(Status(Code::unavailable, "this node now follows a later coordinator"));
    failures_ = 0;
    connect_not_before_ = 0;
    coordinator_ = address;
  }
  epoch_ = epoch;
  if (exists && events_ != nullptr) return deliver_up(kCoordinatorNode, up->second);
  session_to(kCoordinatorNode);
}

void PeerLinks::notify(const std::string& address, const WireMessage& message) {
  Bytes bytes = encode_wire(message);
  std::lock_guard lock(mutex_);
  transport::PeerId peer = transport_.connect(address);
  if (!nodes_.contains(peer)) notices_.insert(peer);
  (void)transport_.send(peer, std::move(bytes));
}

NodeId PeerLinks::node_of(transport::PeerId peer) {
  auto [it, is_new] = nodes_.try_emplace(peer, next_node_);
  if (is_new) {
    sessions_[next_node_] = peer;
    ++next_node_;
  }
  return it->second;
}

void PeerLinks::send(NodeId to, const WireMessage& message) {
  Bytes bytes = encode_wire(message);
  std::lock_guard lock(mutex_);
  if (auto way = tree_.way_to(to)) {
    bytes = encode_link(link::ToChild{way->child, std::move(bytes)});
    to = way->relay;
  }
  std::optional<transport::PeerId> peer = session_to(to);
  if (!peer || !transport_.send(*peer, std::move(bytes)).ok()) ++sends_dropped_;
}

void PeerLinks::look_for_coordinator() {
  std::lock_guard lock(mutex_);
  session_to(kCoordinatorNode);
}

Status PeerLinks::send_up(Bytes message) {
  std::lock_guard lock(mutex_);
  auto session = sessions_.find(kCoordinatorNode);
  if (session == sessions_.end() || !up_.contains(kCoordinatorNode)) {
    return Status(Code::unavailable, "no session with the coordinator");
  }
  return transport_.send(session->second, std::move(message));
}

// Call this and all functions below with the lock held.
void PeerLinks::send_link(NodeId to, const LinkMessage& message) {
  Bytes bytes = encode_link(message);
  if (auto way = tree_.way_to(to)) {
    bytes = encode_link(link::ToChild{way->child, std::move(bytes)});
    to = way->relay;
  }
  auto session = sessions_.find(to);
  if (session == sessions_.end()) return;
  if (!transport_.send(session->second, std::move(bytes)).ok()) ++sends_dropped_;
}

void PeerLinks::deliver_up(NodeId node, const transport::Identity& identity) {
  if (node == kCoordinatorNode) delivered_up_ = true;
  most_.direct_most = std::max(most_.direct_most, tree_.direct_nodes());
  most_.relayed_most = std::max(most_.relayed_most, tree_.relayed_nodes());
  if (node != kCoordinatorNode || via_.empty()) return events_->peer_up(node, identity);
  transport::Identity relay = identity;
  relay.name = "through the relay " + identity.name;
  events_->peer_up(node, relay);
}

void PeerLinks::deliver_lost(NodeId node, const Status& why) {
  if (node == kCoordinatorNode) delivered_up_ = false;
  events_->peer_lost(node, why);
}

std::vector<std::pair<NodeId, transport::Identity>> PeerLinks::peers() const {
  std::lock_guard lock(mutex_);
  return {up_.begin(), up_.end()};
}

std::string PeerLinks::coordinator() const {
  std::lock_guard lock(mutex_);
  return coordinator_;
}

uint32_t PeerLinks::epoch() const {
  std::lock_guard lock(mutex_);
  return epoch_;
}

std::optional<std::string> PeerLinks::unreachable_line() {
  std::lock_guard lock(mutex_);
  // This node may have coordinated, and follow a later coordinator now.
  const bool is_reached = coordinator_.empty() || (is_welcome_ && up_.contains(kCoordinatorNode));
  const std::string address =
      via_.empty() ? coordinator_ : fmt::format("{} through the relay {}", coordinator_, via_);
  return notice_.due(base::steady_now_ns(), is_reached, address,
                     coordinator_lost_.ok() ? "no answer" : coordinator_lost_.message());
}

size_t PeerLinks::peers_up() const {
  std::lock_guard lock(mutex_);
  return up_.size();
}

uint64_t PeerLinks::sends_dropped() const {
  std::lock_guard lock(mutex_);
  return sends_dropped_;
}

PeerLinks::Reach PeerLinks::reach() const {
  std::lock_guard lock(mutex_);
  return most_;
}

void PeerLinks::on_peer_up(transport::PeerId peer, const transport::Identity& identity) {
  std::lock_guard lock(mutex_);
  if (notices_.contains(peer)) return;
  NodeId node = node_of(peer);
  if (node == kCoordinatorNode) {
    // All nodes of a job may wait for a coordinator that takes long to start.
    if (events_ == nullptr || identity.epoch != 0) failures_ = 0;
    epoch_ = std::max(epoch_, identity.epoch);
  }
  if (events_ == nullptr) {
    up_[node] = identity;
  } else if (node == kCoordinatorNode && identity.epoch == 0) {
    // Roles would take it for a coordinator that has their messages.
    const Status not_ready(Code::unavailable, std::string(kCoordinatorNotReady));
    transport_.disconnect(peer, not_ready);
    lose(peer, not_ready);
  } else {
    admit(node, identity);
  }
  changed_.notify_all();
}

void PeerLinks::on_sent(transport::PeerId peer, size_t /*messages*/) {
  std::lock_guard lock(mutex_);
  if (notices_.contains(peer)) transport_.disconnect(peer, Status(Code::unavailable, "the notice was sent"));
}

// A node that connects to the coordinator stays direct, or is sent to a relay.
void PeerLinks::admit(NodeId node, const transport::Identity& identity) {
  RelayTree::Answer answer{.is_direct = true};
  if (coordinates_ && node != kCoordinatorNode) answer = tree_.came(node, identity.incarnation);
  if (answer.is_direct) {
    up_[node] = identity;
    if (coordinates_ && node != kCoordinatorNode) send_link(node, link::Welcome{});
    return deliver_up(node, identity);
  }
  if (answer.asks) {
    send_link(*answer.asks, link::ServeAsRelay{static_cast<uint32_t>(tree_.direct_max())});
  }
  elsewhere_[node] = identity;
  send_link(node, link::UseRelay{answer.go_by, answer.go_by.empty() ? tree_.no_relay_cause() : ""});
}

void PeerLinks::on_message(transport::PeerId peer, Bytes message) {
  auto body = decode_link(message);
  if (body.ok() && *body) return on_link(peer, std::move(**body));
  NodeId node = kThisNode;
  {
    std::lock_guard lock(mutex_);
    node = node_of(peer);
  }
  hand_on(node, peer, std::move(message));
}

// Call without the lock.
void PeerLinks::hand_on(NodeId from, transport::PeerId session, Bytes message) {
  PeerEvents* events = nullptr;
  std::optional<RelayTree::Way> way;
  bool is_elsewhere = false;
  {
    std::lock_guard lock(mutex_);
    events = events_;
    way = tree_.way_to(from);
    is_elsewhere = elsewhere_.contains(from);
  }
  auto decoded = decode_wire(message);
  if (!decoded.ok()) {
    Status why = decoded.status().with_context("malformed message");
    if (!way) return transport_.disconnect(session, why);
    std::lock_guard lock(mutex_);
    return send_link(way->relay, link::DropChild{way->child, why.message()});
  }
  // A node that was sent to a relay repeats its messages there. Those of another coordinator come only here.
  if (is_elsewhere && decoded->from != RoleKind::coordinator) return;
  bool is_taken = events != nullptr && events->received(from, std::move(*decoded), message.size());
  if (is_taken) return;
  std::lock_guard lock(mutex_);
  ++sends_dropped_;
}

void PeerLinks::on_peer_lost(transport::PeerId peer, const Status& why) {
  std::lock_guard lock(mutex_);
  notices_.erase(peer);
  lose(peer, why);
}

void PeerLinks::lose(transport::PeerId peer, const Status& why) {
  auto it = nodes_.find(peer);
  if (it == nodes_.end()) return;
  NodeId node = it->second;
  bool was_up = up_.erase(node) > 0;
  nodes_.erase(it);
  sessions_.erase(node);
  elsewhere_.erase(node);
  if (node == kCoordinatorNode) {
    if (relay_ != nullptr) relay_->close();
    is_welcome_ = false;
    via_.clear();  // if it was a relay, the coordinator is asked for another one
    was_up = was_up || delivered_up_;
    coordinator_lost_ = why;
    connect_not_before_ = base::steady_now_ns() + back_off(failures_++);
  }
  changed_.notify_all();
  if (events_ != nullptr && was_up) deliver_lost(node, why);
  for (NodeId child : tree_.lost(node)) {
    up_.erase(child);
    if (events_ != nullptr) deliver_lost(child, why.with_context("its relay"));
  }
}

void PeerLinks::on_refused(const std::string& address, const Status& why) {
  std::lock_guard lock(mutex_);
  if (events_ != nullptr) events_->peer_refused(address, why);
}

}  // namespace shoal::actors
