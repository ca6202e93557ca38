#include "actors/node/links/relay_tree.h"

#include <algorithm>

namespace shoal::actors {

RelayTree::Answer RelayTree::came(NodeId node, const Nonce& incarnation) {
  Answer answer;
  // A node that was sent to a relay and comes again could not reach it, or has lost it.
  std::optional<NodeId> but;
  if (auto sent = sent_to_.find(incarnation); sent != sent_to_.end()) but = sent->second;
  forget_promise(incarnation);
  if (direct_.size() < direct_max_) {
    if (direct_.emplace(node, Service::none).second) never_asked_.insert(node);
    answer.is_direct = true;
    return answer;
  }
  const auto chosen = choose(but);
  const bool is_filled =
      chosen == relays_.end() || chosen->second.load() >= std::min(kRelayFill, direct_max_);
  if (is_filled || (but && relays_.size() == 1)) answer.asks = next_to_ask();
  if (chosen == relays_.end()) return answer;
  auto& [id, relay] = *chosen;
  answer.go_by = relay.address;
  relay.promised.insert(incarnation);
  load_changed(id, relay);
  sent_to_[incarnation] = id;
  return answer;
}

// The relay with the fewest children that has room. If none has room, ignores promises that were never kept.
RelayTree::Relays::iterator RelayTree::choose(const std::optional<NodeId>& but) {
  for (bool with_promises : {true, false}) {
    for (const auto& [load, node] : by_load_) {
      const auto relay = relays_.find(node);
      const size_t counted = with_promises ? load : relay->second.children.size();
      if (counted >= relay->second.children_max) continue;
      if (but == node && relays_.size() > 1) continue;
      return relay;
    }
  }
  return relays_.end();
}

std::optional<NodeId> RelayTree::next_to_ask() {
  if (asked_ >= kRelaysAskedAtOnce || never_asked_.empty()) return std::nullopt;
  const NodeId node = *never_asked_.begin();
  never_asked_.erase(never_asked_.begin());
  direct_.at(node) = Service::asked;
  ++asked_;
  return node;
}

void RelayTree::load_changed(NodeId node, Relay& relay) {
  by_load_.erase({relay.known_load, node});
  relay.known_load = relay.load();
  by_load_.emplace(relay.known_load, node);
}

void RelayTree::serves(NodeId node, const std::string& address, size_t children_max) {
  auto found = direct_.find(node);
  if (found == direct_.end() || found->second != Service::asked) return;
  --asked_;
  found->second = Service::serves;
  Relay& relay = relays_[node];
  relay.address = address;
  relay.children_max = std::min(children_max, direct_max_);
  load_changed(node, relay);
}

void RelayTree::cannot_serve(NodeId node, const std::string& cause) {
  auto found = direct_.find(node);
  if (found == direct_.end() || found->second != Service::asked) return;
  --asked_;
  found->second = Service::cannot;
  last_failure_ = cause;
}

bool RelayTree::child_up(NodeId relay, uint64_t child, NodeId as, const Nonce& incarnation) {
  auto found = relays_.find(relay);
  if (found == relays_.end() || found->second.children.size() >= found->second.children_max) return false;
  if (!found->second.children.emplace(child, as).second) return false;
  load_changed(relay, found->second);
  forget_promise(incarnation);
  ways_[as] = Way{relay, child};
  return true;
}

std::optional<NodeId> RelayTree::child_lost(NodeId relay, uint64_t child) {
  auto known = child_of(relay, child);
  if (!known) return std::nullopt;
  Relay& left = relays_.at(relay);
  left.children.erase(child);
  load_changed(relay, left);
  ways_.erase(*known);
  return known;
}

std::vector<NodeId> RelayTree::lost(NodeId node) {
  std::vector<NodeId> children;
  auto found = direct_.find(node);
  if (found == direct_.end()) return children;
  if (found->second == Service::asked) --asked_;
  direct_.erase(found);
  never_asked_.erase(node);
  auto relay = relays_.find(node);
  if (relay == relays_.end()) return children;
  for (const auto& [child, id] : relay->second.children) {
    children.push_back(id);
    ways_.erase(id);
  }
  for (const Nonce& incarnation : relay->second.promised) sent_to_.erase(incarnation);
  by_load_.erase({relay->second.known_load, node});
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
    load_changed(relay->first, relay->second);
  }
  sent_to_.erase(sent);
}

std::string RelayTree::no_relay_cause() const {
  const std::string direct = std::to_string(direct_max_) + " nodes are connected to the coordinator";
  if (asked_ > 0) return direct + ", and a relay is starting";
  if (!last_failure_.empty()) return direct + ", and no relay can be started: " + last_failure_;
  return direct + ", and their relays are full";
}

}  // namespace shoal::actors
