// Carries faults out as their times come. What they do to links and disks is sim/failures/hazards.h, to
// processes and sessions sim/cluster/cluster_life.cpp.
#pragma once

#include <functional>
#include <vector>

#include "sim/cluster/counted_trainers.h"
#include "sim/cluster/virtual_cluster.h"
#include "sim/failures/fault.h"

namespace shoal::sim {

// All of these must outlive the run. `listener`, where there is one, hears of each as it begins.
// Precondition: check_fault of each, and the trainers keep offers.
void inject_faults(const std::vector<Fault>& faults, EventHeap& events, VirtualCluster& cluster,
                   CountedTrainers& trainers, std::function<void(const Fault&)> listener = nullptr);

}  // namespace shoal::sim
