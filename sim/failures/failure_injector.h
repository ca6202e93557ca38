// Carries out failures at their times. sim/failures/hazards.h has the effect on links and disks,
// sim/cluster/cluster_life.cpp the effect on processes and sessions.
#pragma once

#include <memory>

#include "sim/cluster/counted_trainers.h"
#include "sim/cluster/virtual_cluster.h"
#include "sim/failures/failure.h"

namespace shoal::sim {

// The failures of one run of a job. `events`, `cluster` and `trainers` must outlive all scheduled events.
class FailureInjector {
 public:
  FailureInjector(EventHeap& events, VirtualCluster& cluster, CountedTrainers& trainers);
  // Precondition: the trainers keep offers, and the kind is not job_restarts. Ignores a failure of hosts and
  // ranks that this run does not have.
  void begin(const Failure& failure);
  // Kills nodes and trainers of these hosts, for ever. Nodes of this run that are down stay down.
  void end_run(const Failure& restart);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace shoal::sim
