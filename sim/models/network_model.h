// NetworkModel: what a message takes from one node to another. LogGOPS, with o counted where the roles run
// (sim/models/cpu_model.h): each node has one interface, a queue in each direction. Two tiers: hosts of a
// rack meet at its switch, which is never full; what passes between racks goes through the one's uplink and
// the other's downlink, queues of bytes at a rate that oversubscription divides. Between uplinks lies a
// fabric that is never full.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sim/basics/event_heap.h"
#include "sim/basics/pool.h"
#include "sim/models/profile.h"

namespace shoal::sim {

class NetworkModel {
 public:
  // Nodes in the order of their numbers fill one rack after the other.
  NetworkModel(EventHeap& events, const NetworkCosts& costs, size_t nodes);

  // A node's interface takes so many thousandths of the time that another takes.
  void slow_down(size_t node, uint32_t permille) { slowness_[node] = permille; }
  // `arrived` runs when the last byte has come. Messages between two nodes stay in order.
  void send(size_t from, size_t to, uint64_t bytes, std::function<void()> arrived);

 private:
  struct Interface {
    actors::TimeNs out_free = 0, in_free = 0;
  };
  struct Message {
    size_t from = 0, to = 0;
    uint64_t bytes = 0;
    actors::TimeNs passed = 0;  // not before then has its last byte passed the slowest link so far
    std::function<void()> arrived;
  };
  actors::TimeNs holds(size_t node, uint64_t bytes) const;  // of its interface
  size_t rack_of(size_t node) const { return node / costs_.hosts_per_rack; }
  void climb(Message* message);    // its first byte is at the uplink of the sender's rack
  void descend(Message* message);  // at the downlink of the receiver's
  void enter(Message* message);    // at the receiver's interface

  EventHeap& events_;
  const NetworkCosts costs_;
  const uint64_t uplink_bytes_per_s_;  // 0: no racks
  std::vector<Interface> interfaces_;
  std::vector<uint32_t> slowness_;  // thousandths, by node
  std::vector<Interface> racks_;    // out: the uplink; in: the downlink
  Pool<Message> messages_;          // on their way to the receiver's interface
};

}  // namespace shoal::sim
