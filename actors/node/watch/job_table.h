// Makes the status of the whole job from what the coordinator's node knows and from what the nodes answered.
// Pure functions, for `shoal status` and the status page.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "local/status/job_status.h"
#include "local/status/node_status.h"
#include "shoal/roster.h"

namespace shoal::actors {

struct JobFacts {
  // Of other hosts, as their nodes stated; each rank is of the host that claimed it last. Empty: others have
  // claimed all ranks of this host.
  std::map<std::string, std::set<Rank>> ranks_of_hosts;
  bool is_rank_local = false;  // nodes report no saves to the coordinator
};

// `own`: of this node. `hosts`: the answer of each host, this one included. A host without an answer has at
// least its name and its state. A host that has answered has the ranks that it states; the others have those
// that no such host has. `replaced`, if not null, receives the names of the lost hosts that the table leaves
// out, because other hosts have all their ranks.
local::JobStatus job_status_of(const local::NodeStatus& own, std::vector<local::HostStatus> hosts,
                               const JobFacts& facts, std::vector<std::string>* replaced = nullptr);

}  // namespace shoal::actors
