// RelayModel: by which way messages go between nodes and the coordinator, node 0. Beyond a stated number of
// nodes they pass through relays, which are ordinary nodes (docs/reference/transport.md, "Relays"). Who
// relays for whom the production state machine decides (actors/node/links/relay_tree.h), when nodes come in
// the order of their numbers.
//
// A relay passes a message on in a thread of its own, one at a time: its interface is used twice, and a
// message's time of a processor, too. That nodes come, are sent on and come again costs nothing here; a relay
// that dies is left for the next one once it has been silent long enough, what was under way being lost.
// After another node has taken over as coordinator, all speak to it straight.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "actors/node/links/relay_tree.h"
#include "sim/models/network_model.h"

namespace shoal::sim {

class RelayModel {
 public:
  // direct_max: nodes that speak to the coordinator themselves.
  RelayModel(EventHeap& events, NetworkModel& network, const CpuCosts& cpu, size_t nodes, size_t direct_max);

  // One of the two is node 0, or the way is straight. As NetworkModel::send.
  void send(size_t from, size_t to, uint64_t bytes, std::function<void()> arrived);
  void kill(size_t node);
  void revive(size_t node) { dead_[node] = false; }
  size_t relay_of(size_t node) const { return relay_of_[node]; }  // 0: none
  size_t relays() const { return relays_; }

 private:
  struct Passing {  // at a relay, or on its way there
    size_t relay = 0, to = 0;
    uint64_t bytes = 0;  // from there on
    std::function<void()> arrived;
  };
  void pass_on(Passing* passing);

  EventHeap& events_;
  NetworkModel& network_;
  const actors::TimeNs passing_ns_;
  std::vector<uint32_t> relay_of_;
  std::vector<actors::TimeNs> free_;  // a relay's thread, by node
  std::vector<bool> dead_;
  size_t relays_ = 0;
  Pool<Passing> passing_;
};

}  // namespace shoal::sim
