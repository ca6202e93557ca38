// RelayTree: who is connected to the coordinator, who goes by way of a relay, and who becomes one. The
// coordinator's side, as a state machine without I/O: events in, decisions out, equal events give equal
// decisions. docs/reference/transport.md, "Relays".
//
// The first `direct_max` nodes are direct. Whoever comes then is sent to a direct node that serves as a
// relay; there are no relays of relays, so that a job has at most direct_max * (direct_max + 1) nodes beside
// the coordinator's. A direct node is asked to serve when those that do are filled, and no sooner.
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
inline constexpr uint32_t kMaxDirectNodes = transport::kMaxPeers - 256;  // some come and are sent on
inline constexpr size_t kRelayFill = 32;  // children of each relay before another node is asked to serve
inline constexpr size_t kRelaysAskedAtOnce = 8;  // that have not answered yet

class RelayTree {
 public:
  explicit RelayTree(size_t direct_max) : direct_max_(direct_max) {}

  struct Answer {
    bool is_direct = false;
    std::string go_by;           // where not direct: the relay's address; empty: come again
    std::optional<NodeId> asks;  // this direct node is to serve as a relay
  };
  // A node has a session of its own with the coordinator. One that is not direct is expected to leave it.
  Answer came(NodeId node, const Nonce& incarnation);
  void serves(NodeId node, const std::string& address, size_t children_max);
  void cannot_serve(NodeId node, const std::string& cause);

  // A child of a relay is there, and is called `as` from now on. False: no such relay, or a number that it
  // has used already.
  bool child_came(NodeId relay, uint64_t child, NodeId as, const Nonce& incarnation);
  std::optional<NodeId> child_left(NodeId relay, uint64_t child);  // who that was
  // A node's session with the coordinator has ended. Its children, who are lost with it; ascending.
  std::vector<NodeId> lost(NodeId node);

  struct Way {
    NodeId relay = 0;
    uint64_t child = 0;
  };
  std::optional<Way> way_to(NodeId node) const;  // nothing: it is no child
  std::optional<NodeId> child_of(NodeId relay, uint64_t child) const;

  size_t direct_max() const { return direct_max_; }
  size_t direct_nodes() const { return direct_.size(); }
  size_t relayed_nodes() const { return ways_.size(); }
  size_t relays() const { return relays_.size(); }
  bool is_direct(NodeId node) const { return direct_.contains(node); }
  // Why nobody can be sent anywhere; for people.
  std::string no_relay_cause() const;

 private:
  struct Relay {
    std::string address;
    size_t children_max = 0;
    std::map<uint64_t, NodeId> children;
    std::set<Nonce> promised;  // sent there, and not heard of since
    size_t known_load = 0;     // as by_load_ has it
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
  std::set<NodeId> never_asked_;                 // of these
  Relays relays_;                                // of those that serve
  std::set<std::pair<size_t, NodeId>> by_load_;  // the relays
  std::map<Nonce, NodeId> sent_to_;              // the relay of each promise
  std::map<NodeId, Way> ways_;                   // of children
  size_t asked_ = 0;
  std::string last_failure_;
};

}  // namespace shoal::actors
