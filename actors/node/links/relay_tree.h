// RelayTree: decides which nodes connect to the coordinator directly, which use a relay, and which become
// relays. It runs at the coordinator and is a state machine without I/O: equal events give equal decisions.
// docs/reference/transport.md, "Relays".
//
// The first `direct_max` nodes are direct. Each later node is sent to a direct node that serves as a relay. A
// relay has no relays below it, so a job has at most direct_max * (direct_max + 1) nodes besides the
// coordinator's. A direct node is requested to serve only when the existing relays are full.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/role.h"

namespace shoal::actors {

inline constexpr size_t kDefaultDirectNodes = 2048;
// The rest is for nodes that are sent on.
inline constexpr uint32_t kMaxDirectNodes = transport::kMaxPeers - 256;
// Children of each relay before a further node is requested to serve.
inline constexpr size_t kRelayFill = 32;
inline constexpr size_t kRelaysAskedAtOnce = 8;  // requests without an answer yet

class RelayTree {
 public:
  explicit RelayTree(size_t direct_max) : direct_max_(direct_max) {}

  struct Answer {
    bool is_direct = false;
    std::string go_by;           // if not direct: address of the relay; empty: try again later
    std::optional<NodeId> asks;  // this direct node must be requested to serve
  };
  // A node has its own session with the coordinator. If it is not direct, it should leave this session.
  Answer came(NodeId node, const Nonce& incarnation);
  void serves(NodeId node, const std::string& address, size_t children_max);
  void cannot_serve(NodeId node, const std::string& cause);

  // A child of a relay is up; `as` is its id from now on. False: there is no such relay, or it used this
  // number before.
  bool child_up(NodeId relay, uint64_t child, NodeId as, const Nonce& incarnation);
  std::optional<NodeId> child_lost(NodeId relay, uint64_t child);  // the child's id
  // The session of a node has ended. Returns its children, which are lost with it, ascending.
  std::vector<NodeId> lost(NodeId node);

  struct Way {
    NodeId relay = 0;
    uint64_t child = 0;
  };
  std::optional<Way> way_to(NodeId node) const;  // nullopt: it is no child
  std::optional<NodeId> child_of(NodeId relay, uint64_t child) const;

  size_t direct_max() const { return direct_max_; }
  size_t direct_nodes() const { return direct_.size(); }
  size_t relayed_nodes() const { return ways_.size(); }
  size_t relays() const { return relays_.size(); }
  bool is_direct(NodeId node) const { return direct_.contains(node); }
  // Human-readable: why no relay is available.
  std::string no_relay_cause() const;

 private:
  struct Relay {
    std::string address;
    size_t children_max = 0;
    std::map<uint64_t, NodeId> children;
    std::set<Nonce> promised;  // nodes that were sent to it and have not arrived
    size_t known_load = 0;     // its entry in by_load_
    size_t load() const { return children.size() + promised.size(); }
  };
  using Relays = std::map<NodeId, Relay>;
  Relays::iterator choose(const std::optional<NodeId>& but);
  std::optional<NodeId> next_to_ask();
  void load_changed(NodeId node, Relay& relay);
  void forget_promise(const Nonce& incarnation);

  const size_t direct_max_;
  enum class Service { none, asked, serves, cannot };
  std::map<NodeId, Service> direct_;
  std::set<NodeId> never_asked_;                 // of the direct nodes
  Relays relays_;                                // nodes that serve
  std::set<std::pair<size_t, NodeId>> by_load_;  // the relays
  std::map<Nonce, NodeId> sent_to_;              // relay of each promise
  std::map<NodeId, Way> ways_;                   // of the children
  size_t asked_ = 0;
  std::string last_failure_;
};

}  // namespace shoal::actors
