// JobEnd: simulates how the nodes of a job end when its trainers have closed their Checkpointers. A launcher
// reports that the trainers of its host have ended, and requests its node to stop. A node that trainers have
// started ends by itself: it has been idle for a while, and no other node needs it.
#pragma once

#include <cstdint>
#include <set>

#include "sim/cluster/counted_trainers.h"
#include "sim/cluster/virtual_cluster.h"

namespace shoal::sim {

class JobEnd {
 public:
  // The arguments outlive all scheduled events.
  JobEnd(EventHeap& events, VirtualCluster& cluster, const CountedTrainers& trainers, uint32_t ranks_per_host)
      : events_(events), cluster_(cluster), trainers_(trainers), ranks_per_host_(ranks_per_host) {}

  void closed(Rank rank);  // the trainer of this rank has closed its Checkpointer
  void end_empty();        // also the nodes all of whose trainers are dead end now
  // The process of each node whose trainers have all closed has ended.
  bool done() const { return ending_.empty(); }

 private:
  void begin(size_t node);
  void end(size_t node);
  void end_when_idle(size_t node);

  EventHeap& events_;
  VirtualCluster& cluster_;
  const CountedTrainers& trainers_;
  const uint32_t ranks_per_host_;
  std::set<size_t> ending_;  // nodes
};

}  // namespace shoal::sim
