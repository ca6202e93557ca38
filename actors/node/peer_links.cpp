#include "actors/node/peer_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace shoal {

namespace {

constexpr std::chrono::milliseconds kWaitTick{50};

TimeNs steady_now() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

TimeNs back_off(uint32_t failures) {
  uint64_t wait_ms = uint64_t{kReconnectFirstMs} << std::min(failures, 16u);
  return static_cast<TimeNs>(std::min<uint64_t>(wait_ms, kReconnectMostMs)) * kMillisecond;
}

}  // namespace

PeerLinks::PeerLinks(Transport& transport, std::string coordinator)
    : transport_(transport), coordinator_(std::move(coordinator)) {}

void PeerLinks::serve(PeerEvents& events) {
  std::lock_guard lock(mutex_);
  events_ = &events;
  for (const auto& [node, identity] : up_) events.peer_up(node, identity);
}

Result<Identity> PeerLinks::find_coordinator(uint32_t timeout_ms, const std::function<bool()>& give_up) {
  TimeNs begun = steady_now(), deadline = begun + TimeNs{timeout_ms} * kMillisecond;
  std::unique_lock lock(mutex_);
  while (true) {
    auto up = up_.find(kCoordinatorNode);
    if (up != up_.end() && up->second.epoch != 0) return up->second;
    if (up != up_.end()) {  // it listens, but has not claimed its epoch yet
      PeerId peer = sessions_.at(kCoordinatorNode);
      Status not_ready(Code::unavailable, "the coordinator is not ready yet");
      lock.unlock();
      transport_.disconnect(peer, not_ready);
      on_peer_lost(peer, not_ready);
      lock.lock();
    }
    // A refusal mostly stays one; a coordinator of an earlier job that is about to end does not.
    bool is_refused = coordinator_lost_.code() == Code::refused || coordinator_lost_.code() == Code::version;
    bool is_over = steady_now() >= deadline ||
                   (is_refused && steady_now() >= begun + TimeNs{kRefusedPatienceMs} * kMillisecond);
    lock.unlock();
    is_over = give_up() || is_over;
    lock.lock();
    if (is_over) {
      std::string cause = coordinator_lost_.ok() ? "no answer" : coordinator_lost_.message();
      return Status(is_refused ? coordinator_lost_.code() : Code::unavailable,
                    fmt::format("no coordinator at {} within {} ms: {}", coordinator_,
                                (steady_now() - begun) / kMillisecond, cause));
    }
    session_to(kCoordinatorNode);
    changed_.wait_for(lock, kWaitTick);
  }
}

// With the lock held.
std::optional<PeerId> PeerLinks::session_to(NodeId to) {
  auto it = sessions_.find(to);
  if (it != sessions_.end()) return it->second;
  if (to != kCoordinatorNode || coordinator_.empty() || steady_now() < connect_not_before_)
    return std::nullopt;
  PeerId peer = transport_.connect(coordinator_);
  sessions_[kCoordinatorNode] = peer;
  nodes_[peer] = kCoordinatorNode;
  return peer;
}

// With the lock held. What the session still says is that of a stranger.
void PeerLinks::leave_coordinator() {
  auto it = sessions_.find(kCoordinatorNode);
  if (it == sessions_.end()) return;
  transport_.disconnect(it->second, Status(Code::unavailable, "a later coordinator is followed"));
  nodes_.erase(it->second);
  sessions_.erase(it);
  up_.erase(kCoordinatorNode);
}

void PeerLinks::redirect(uint32_t epoch, const std::string& address) {
  std::lock_guard lock(mutex_);
  if (epoch < epoch_ || !parse_host_port(address).ok()) return;
  auto up = up_.find(kCoordinatorNode);
  bool stands = up != up_.end() && up->second.epoch >= epoch;
  if (!stands && (epoch > epoch_ || address != coordinator_)) {
    leave_coordinator();
    failures_ = 0;
    connect_not_before_ = 0;
    coordinator_ = address;
  }
  epoch_ = epoch;
  if (stands && events_ != nullptr) return events_->peer_up(kCoordinatorNode, up->second);
  session_to(kCoordinatorNode);
}

void PeerLinks::tell(const std::string& address, const WireMessage& message) {
  PeerId peer = transport_.connect(address);
  (void)transport_.send(peer, encode_wire(message));
}

NodeId PeerLinks::node_of(PeerId peer) {
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
  std::optional<PeerId> peer = session_to(to);
  if (!peer || !transport_.send(*peer, std::move(bytes)).ok()) ++sends_dropped_;
}

std::vector<std::pair<NodeId, Identity>> PeerLinks::peers() const {
  std::lock_guard lock(mutex_);
  return {up_.begin(), up_.end()};
}

size_t PeerLinks::peers_up() const {
  std::lock_guard lock(mutex_);
  return up_.size();
}

uint64_t PeerLinks::sends_dropped() const {
  std::lock_guard lock(mutex_);
  return sends_dropped_;
}

void PeerLinks::on_peer_up(PeerId peer, const Identity& identity) {
  std::lock_guard lock(mutex_);
  NodeId node = node_of(peer);
  up_[node] = identity;
  if (node == kCoordinatorNode) {
    failures_ = 0;
    epoch_ = std::max(epoch_, identity.epoch);
  }
  changed_.notify_all();
  if (events_ != nullptr) events_->peer_up(node, identity);
}

void PeerLinks::on_message(PeerId peer, Bytes message) {
  NodeId node = kThisNode;
  PeerEvents* events = nullptr;
  {
    std::lock_guard lock(mutex_);
    node = node_of(peer);
    events = events_;
  }
  auto decoded = decode_wire(message);
  if (!decoded.ok()) {
    Status why = decoded.status().with_context("malformed message");
    transport_.disconnect(peer, why);
    return;
  }
  bool is_taken = events != nullptr && events->received(node, std::move(*decoded), message.size());
  if (is_taken) return;
  std::lock_guard lock(mutex_);
  ++sends_dropped_;
}

void PeerLinks::on_peer_lost(PeerId peer, const Status& why) {
  std::lock_guard lock(mutex_);
  auto it = nodes_.find(peer);
  if (it == nodes_.end()) return;
  NodeId node = it->second;
  bool was_up = up_.erase(node) > 0;
  nodes_.erase(it);
  sessions_.erase(node);
  if (node == kCoordinatorNode) {
    coordinator_lost_ = why;
    connect_not_before_ = steady_now() + back_off(failures_++);
  }
  changed_.notify_all();
  if (events_ != nullptr && was_up) events_->peer_lost(node, why);
}

void PeerLinks::on_refused(const std::string& address, const Status& why) {
  std::lock_guard lock(mutex_);
  if (events_ != nullptr) events_->peer_refused(address, why);
}

}  // namespace shoal
