#include "actors/relay_tree.h"

#include <algorithm>

namespace shoal {

RelayTree::Answer RelayTree::came(NodeId node, const Nonce& incarnation) {
  Answer answer;
  // Whoever was sent to a relay and comes again did not get there, or has lost it.
  std::optional<NodeId> but;
  if (auto sent = sent_to_.find(incarnation); sent != sent_to_.end()) but = sent->second;
  forget_promise(incarnation);
  if (direct_.size() < direct_max_) {
    direct_.emplace(node, Service::none);
    answer.is_direct = true;
    return answer;
  }
  Relay* relay = choose(but);
  bool is_filled = relay == nullptr || relay->load() >= std::min(kRelayFill, direct_max_);
  if (is_filled || (but && relays_.size() == 1)) answer.asks = next_to_ask();
  if (relay == nullptr) return answer;
  answer.go_by = relay->address;
  relay->promised.insert(incarnation);
  for (const auto& [id, each] : relays_) {
    if (&each == relay) sent_to_[incarnation] = id;
  }
  return answer;
}

// The least loaded that has room; where none has, promises that were never kept count no longer.
RelayTree::Relay* RelayTree::choose(const std::optional<NodeId>& but) {
  Relay* chosen = nullptr;
  for (bool with_promises : {true, false}) {
    for (auto& [node, relay] : relays_) {
      size_t load = with_promises ? relay.load() : relay.children.size();
      if (load >= relay.children_max) continue;
      if (but == node && relays_.size() > 1) continue;
      if (chosen == nullptr || relay.load() < chosen->load()) chosen = &relay;
    }
    if (chosen != nullptr) return chosen;
  }
  return nullptr;
}

std::optional<NodeId> RelayTree::next_to_ask() {
  if (asked_ >= kRelaysAskedAtOnce) return std::nullopt;
  for (auto& [node, service] : direct_) {
    if (service != Service::none) continue;
    service = Service::asked;
    ++asked_;
    return node;
  }
  return std::nullopt;
}

void RelayTree::serves(NodeId node, const std::string& address, size_t children_max) {
  auto found = direct_.find(node);
  if (found == direct_.end() || found->second != Service::asked) return;
  --asked_;
  found->second = Service::serves;
  Relay& relay = relays_[node];
  relay.address = address;
  relay.children_max = std::min(children_max, direct_max_);
}

void RelayTree::cannot_serve(NodeId node, const std::string& cause) {
  auto found = direct_.find(node);
  if (found == direct_.end() || found->second != Service::asked) return;
  --asked_;
  found->second = Service::cannot;
  last_failure_ = cause;
}

bool RelayTree::child_came(NodeId relay, uint64_t child, NodeId as, const Nonce& incarnation) {
  auto found = relays_.find(relay);
  if (found == relays_.end() || found->second.children.size() >= found->second.children_max) return false;
  if (!found->second.children.emplace(child, as).second) return false;
  forget_promise(incarnation);
  ways_[as] = Way{relay, child};
  return true;
}

std::optional<NodeId> RelayTree::child_left(NodeId relay, uint64_t child) {
  auto known = child_of(relay, child);
  if (!known) return std::nullopt;
  relays_[relay].children.erase(child);
  ways_.erase(*known);
  return known;
}

std::vector<NodeId> RelayTree::lost(NodeId node) {
  std::vector<NodeId> children;
  auto found = direct_.find(node);
  if (found == direct_.end()) return children;
  if (found->second == Service::asked) --asked_;
  direct_.erase(found);
  auto relay = relays_.find(node);
  if (relay == relays_.end()) return children;
  for (const auto& [child, id] : relay->second.children) {
    children.push_back(id);
    ways_.erase(id);
  }
  for (const Nonce& incarnation : relay->second.promised) sent_to_.erase(incarnation);
  relays_.erase(relay);
  std::sort(children.begin(), children.end());
  return children;
}

std::optional<RelayTree::Way> RelayTree::way_to(NodeId node) const {
  auto found = ways_.find(node);
  if (found == ways_.end()) return std::nullopt;
  return found->second;
}

std::optional<NodeId> RelayTree::child_of(NodeId relay, uint64_t child) const {
  auto found = relays_.find(relay);
  if (found == relays_.end()) return std::nullopt;
  auto known = found->second.children.find(child);
  if (known == found->second.children.end()) return std::nullopt;
  return known->second;
}

void RelayTree::forget_promise(const Nonce& incarnation) {
  auto sent = sent_to_.find(incarnation);
  if (sent == sent_to_.end()) return;
  if (auto relay = relays_.find(sent->second); relay != relays_.end()) {
    relay->second.promised.erase(incarnation);
  }
  sent_to_.erase(sent);
}

std::string RelayTree::no_relay_cause() const {
  const std::string direct = std::to_string(direct_max_) + " nodes are connected to the coordinator";
  if (asked_ > 0) return direct + ", and a relay is about to be ready";
  if (!last_failure_.empty()) return direct + ", and no relay can be had: " + last_failure_;
  return direct + ", and their relays are full";
}

}  // namespace shoal
