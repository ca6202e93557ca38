// NetworkModel: the time of a message from one node to another. The model is LogGOPS; o is counted where the
// roles run (sim/models/cpu_model.h). Each node has one interface with a queue per direction. There are two
// tiers. Hosts of a rack share a switch with unlimited capacity. Traffic between racks passes the uplink of
// one rack and the downlink of the other. These links are queues of bytes, whose rate is divided by the
// oversubscription. The fabric between uplinks has unlimited capacity.
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
  // Nodes fill the racks in the order of their numbers.
  NetworkModel(EventHeap& events, const NetworkCosts& costs, size_t nodes);

  // Slows the interface of a node down: `permille` thousandths of the time of other interfaces.
  void slow_down(size_t node, uint32_t permille) { slowness_[node] = permille; }
  // `arrived` runs when the last byte arrives. Messages between two nodes stay in order.
  void send(size_t from, size_t to, uint64_t bytes, std::function<void()> arrived);

 private:
  struct Interface {
    actors::TimeNs out_free = 0, in_free = 0;
  };
  struct Message {
    size_t from = 0, to = 0;
    uint64_t bytes = 0;
    actors::TimeNs passed = 0;  // earliest time at which its last byte has passed the slowest link so far
    std::function<void()> arrived;
  };
  // Time for which the message occupies the node's interface.
  actors::TimeNs holds(size_t node, uint64_t bytes) const;
  size_t rack_of(size_t node) const { return node / costs_.hosts_per_rack; }
  void climb(Message* message);    // its first byte is at the uplink of the sender's rack
  void descend(Message* message);  // its first byte is at the downlink of the receiver's rack
  void enter(Message* message);    // its first byte is at the receiver's interface

  EventHeap& events_;
  const NetworkCosts costs_;
  const uint64_t uplink_bytes_per_s_;  // 0: no racks
  std::vector<Interface> interfaces_;
  std::vector<uint32_t> slowness_;  // thousandths, by node
  std::vector<Interface> racks_;    // out: the uplink; in: the downlink
  Pool<Message> messages_;          // messages in transit to the receiver's interface
};

}  // namespace shoal::sim
