// Carries out faults at their times. sim/failures/hazards.h has the effect on links and disks,
// sim/cluster/cluster_life.cpp the effect on processes and sessions.
#pragma once

#include <functional>
#include <vector>

#include "sim/cluster/counted_trainers.h"
#include "sim/cluster/virtual_cluster.h"
#include "sim/failures/fault.h"

namespace shoal::sim {

// All arguments must outlive the run. `listener`, if not null, is called when a fault begins. Precondition:
// check_fault accepts each fault, and the trainers keep offers.
void inject_faults(const std::vector<Fault>& faults, EventHeap& events, VirtualCluster& cluster,
                   CountedTrainers& trainers, std::function<void(const Fault&)> listener = nullptr);

}  // namespace shoal::sim
