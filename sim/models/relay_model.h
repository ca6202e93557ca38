// RelayModel: the routes of messages between nodes and the coordinator, node 0. Beyond a given number of
// nodes, messages pass through relays, which are ordinary nodes (docs/reference/transport.md, "Relays"). The
// production state machine (actors/node/links/relay_tree.h) assigns a relay to each node, with nodes arriving
// in the order of their numbers.
//
// A relay forwards messages in its own thread, one at a time. So a message uses the relay's interface twice,
// and takes processor time once more. Redirecting nodes to relays costs nothing here. If a relay dies, its
// nodes move to the next relay once it has been silent for kSilenceNs; messages in transit are lost. After
// another node has become the coordinator, all nodes send to it directly.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "actors/node/links/relay_tree.h"
#include "sim/models/network_model.h"

namespace shoal::sim {

class RelayModel {
 public:
  // direct_max: number of nodes that connect to the coordinator directly.
  RelayModel(EventHeap& events, NetworkModel& network, const CpuCosts& cpu, size_t nodes, size_t direct_max);

  // As NetworkModel::send. The message uses a relay only if one of the two nodes is node 0.
  void send(size_t from, size_t to, uint64_t bytes, std::function<void()> arrived);
  void kill(size_t node);
  void revive(size_t node) { dead_[node] = false; }
  size_t relay_of(size_t node) const { return relay_of_[node]; }  // 0: none
  size_t relays() const { return relays_; }

 private:
  struct Passing {  // a message at a relay, or in transit to it
    size_t relay = 0, to = 0;
    uint64_t bytes = 0;  // bytes that the relay sends on
    std::function<void()> arrived;
  };
  void pass_on(Passing* passing);

  EventHeap& events_;
  NetworkModel& network_;
  const actors::TimeNs passing_ns_;
  std::vector<uint32_t> relay_of_;
  std::vector<actors::TimeNs> free_;  // by node: when the relay's thread is free
  std::vector<bool> dead_;
  size_t relays_ = 0;
  Pool<Passing> passing_;
};

}  // namespace shoal::sim
