// Carries out failures at their times. sim/failures/hazards.h has the effect on links and disks,
// sim/cluster/cluster_life.cpp the effect on processes and sessions.
#pragma once

#include <functional>
#include <vector>

#include "sim/cluster/counted_trainers.h"
#include "sim/cluster/virtual_cluster.h"
#include "sim/failures/failure.h"

namespace shoal::sim {

// All arguments must outlive the run. `listener`, if not null, is called when a failure begins. Precondition:
// check_failure accepts each failure, and the trainers keep offers.
void inject_failures(const std::vector<Failure>& failures, EventHeap& events, VirtualCluster& cluster,
                     CountedTrainers& trainers, std::function<void(const Failure&)> listener = nullptr);

}  // namespace shoal::sim
