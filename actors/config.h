// What the constructor of a role receives: deadlines, bounds, and what the node knows when it starts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/planner/plan_source.h"
#include "storage/retention/retention.h"
#include "transport/transport.h"

namespace shoal::actors {

// Deadlines and intervals of all roles. All nodes of a run use the same values.
struct Timeouts {
  uint32_t join_gather_ms = 5;       // from the attachment of a local rank to the message that reports it
  uint32_t resend_first_ms = 500;    // first interval between resends; each is twice the one before ...
  uint32_t resend_most_ms = 10'000;  // ... up to this one; Pending sets this one at once
  // Lower bound of the interval for each host of the job; the longest is 8 times this.
  uint32_t resend_host_us = 500;
  uint32_t report_partial_after_ms = 2'000;  // after the first local rank has written
  uint32_t attempt_deadline_ms = 120'000;    // coordinator: from the last news of an attempt to its abort
  // Node: from Staged until it publishes its own tombstone, if no coordinator has sent a decision.
  uint32_t node_deadline_ms = 300'000;
  // How long an undecided attempt of an earlier generation must be unchanged before it is decided.
  uint32_t abandoned_after_ms = 10'000;
  uint32_t poll_ms = 100;              // interval between looks at an undecided attempt
  uint32_t drain_patience_ms = 5'000;  // during a drain: for a save that nobody here can complete any more
  // From the end of a host's session with the coordinator, until its node or its trainers must have come
  // back. Then saves that wait for its ranks are aborted. The same holds for a node that has lost its
  // coordinator.
  uint32_t host_lost_ms = 15'000;
  // A node that starts waits this long for its coordinator, then it ends.
  uint32_t find_coordinator_ms = 60'000;
  // How often a coordinator, or a node that lost it, reads the epoch in the root.
  uint32_t epoch_check_ms = 5'000;
  uint32_t lease_renew_ms = 5'000;  // interval at which a load increments the counter of its pin
  uint32_t lease_ttl_ms = 60'000;   // a pin whose counter has not changed for this long has ended
  // A coordinator sends the roster of a load when no further host has joined it for this long. The nodes of
  // the load may request a longer time, up to load_gather_longest_ms.
  uint32_t load_gather_quiet_ms = 200;
  uint32_t load_gather_longest_ms = 3'000;
  // It sends the roster at the latest this long after the first join, or after 15 of the intervals above.
  uint32_t load_gather_most_ms = 10'000;
  uint32_t load_join_patience_ms = 25'000;  // for the coordinator's answer; then a node reads by itself
  // The same for a load that may fall back: the node that chooses reads a whole checkpoint first.
  uint32_t load_verify_patience_ms = 1'800'000;
  // A load stops requesting chunks from a host that has sent nothing for this long.
  uint32_t chunk_deadline_ms = 5'000;
};

// Bounds of the memory for all loads of a node: windows of clients, and chunks for other hosts.
inline constexpr uint64_t kDefaultLoadMemoryBytes = uint64_t{256} << 20;
inline constexpr uint64_t kMinLoadMemoryBytes = uint64_t{16} << 20;

// What the options of a node state for its roles. NodeOptions (actors/node/node.h) and NodeConfig both
// contain it, and a node passes it on as a whole.
struct RoleSettings {
  // The job only reads the root, while another job trains. It claims a number under readers/ instead of a
  // generation.
  bool read_only = false;
  std::string job_id;                // equal on all hosts of a run
  uint32_t world_size = 0;           // 0: the first client states it
  std::vector<Rank> expected_ranks;  // ranks of this host, if known; empty: those that attach
  uint64_t load_memory_bytes = kDefaultLoadMemoryBytes;  // bound for all loads of this node (window_budget.h)
  Timeouts timeouts;
  storage::RetentionPolicy retention;  // used by the coordinator
};

struct NodeConfig : RoleSettings {  // what the roles of a node know when they start
  uint32_t generation = 0;          // of a job that only reads: its number under readers/
  uint32_t epoch = 0;
  std::string host;                                        // name of this host, distinct in the job
  int32_t pid = 0;                                         // for clients (local::Attached)
  size_t message_bytes_max = transport::kMaxMessageBytes;  // bound of one message to another node
  bool grants_staging = false;     // the node answers StagingRequest, and Attached says so
  bool counts_returns = false;     // likewise: the node takes SaveReturned
  bool clients_read_files = true;  // the root's objects are files that clients of this host can open
  std::shared_ptr<PlanSource> plans = std::make_shared<PlanSource>();  // never null
};

}  // namespace shoal::actors
