// RunStart: what the nodes of a run do before their roles start, on a root that an earlier run has used. It
// follows actors/node/bootstrap.h and Node::take_place.
//
// Each node reads the id of the root, and proves by a file of its own that the storage can hold checkpoints.
// Then the coordinator looks for the coordinator of the run before, and claims the next generation and epoch.
// The other nodes connect to it, with the back-off of live nodes, by the four messages of the handshake; a
// node beyond max_direct_nodes connects to its relay as well. Each reads the record of the generation.
//
// The roles start when all nodes have connected, where live roles start node by node. Opening the catalog,
// sessions with TLS, and storage operations that fail are not modelled.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "sim/basics/event_heap.h"
#include "sim/cluster/counted_root.h"
#include "sim/models/network_model.h"
#include "sim/models/relay_model.h"
#include "sim/models/storage_model.h"

namespace shoal::sim {

class RunStart {
 public:
  struct Costs {
    StorageCosts storage;
    NetworkCosts network;
    CpuCosts cpu;
  };
  struct Job {
    size_t nodes = 0;
    uint32_t generation = 1;    // that the coordinator claims
    size_t attempts = 0;        // folders of attempts in the root
    uint32_t epochs = 0;        // claimed in the root before
    bool answers_late = false;  // the host of the earlier coordinator is gone, so that its probe times out
  };
  // All references outlive this object. Node 0 coordinates.
  RunStart(EventHeap& events, StorageModel& storage, NetworkModel& network, const RelayModel& relays,
           const Costs& costs, const Job& job);

  // `claimed` runs when the coordinator has claimed its epoch, `connected` when all nodes have connected.
  void begin(std::function<void()> claimed, std::function<void()> connected);
  // Nothing happens any more: the run was killed.
  void stop() { has_stopped_ = true; }

 private:
  void open_root(size_t node);
  void claim();
  void connect(size_t node, uint32_t failures);
  void shake_hands(size_t node, size_t with, uint32_t message, std::function<void()> done);
  void join();
  void run(size_t node, StorageSteps steps, std::function<void()> then);
  void add_create(StorageSteps& steps) const;
  void add_read(StorageSteps& steps, uint64_t records) const;

  EventHeap& events_;
  StorageModel& storage_;
  NetworkModel& network_;
  const RelayModel& relays_;
  const Costs costs_;
  const Job job_;
  std::function<void()> claimed_, connected_;
  bool serves_ = false, has_stopped_ = false;
  std::vector<actors::TimeNs> thread_free_;  // by node: of its transport
  size_t joined_ = 0;
};

}  // namespace shoal::sim
