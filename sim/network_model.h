// NetworkModel: what a message takes from one node to another. Each node has one interface, a queue in each
// direction; between interfaces lies a fabric that is never full. LogGOPS, with o counted where the roles run
// (sim/cpu_model.h).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sim/event_heap.h"
#include "sim/profile.h"

namespace shoal {

class NetworkModel {
 public:
  NetworkModel(EventHeap& events, const NetworkCosts& costs, size_t nodes)
      : events_(events), costs_(costs), interfaces_(nodes) {}

  // `arrived` runs when the last byte has come. Messages between two nodes stay in order.
  void send(size_t from, size_t to, uint64_t bytes, std::function<void()> arrived);

 private:
  struct Interface {
    TimeNs out_free = 0, in_free = 0;
  };
  EventHeap& events_;
  const NetworkCosts costs_;
  std::vector<Interface> interfaces_;
};

}  // namespace shoal
