// What the roles of a node are made with: deadlines, bounds, and what the node knows from the start.
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

// Deadlines and intervals of all roles; one set a run.
struct RoleTimes {
  uint32_t join_gather_ms = 5;       // local ranks that attach together are reported together
  uint32_t resend_first_ms = 500;    // doubled after each resend ...
  uint32_t resend_most_ms = 10'000;  // ... up to this; at once that long after a Pending
  uint32_t resend_host_us = 500;     // at least so long for each host of the job, and eight times as long
  uint32_t report_partial_after_ms = 2'000;  // after the first local rank has written
  uint32_t attempt_deadline_ms = 120'000;    // coordinator: from the last news of an attempt to its abort
  uint32_t node_deadline_ms =
      300'000;  // node: from staged to its own tombstone, without a coordinator's word
  uint32_t abandoned_after_ms =
      10'000;              // an undecided attempt of an earlier generation, unchanged for that long
  uint32_t poll_ms = 100;  // how often an undecided attempt is looked at
  uint32_t drain_patience_ms = 5'000;  // a drain: for a save that nobody here can complete any more
  // From the end of a host's session with the coordinator, for its node or its trainers to come back; then
  // saves that wait for its ranks are aborted. Likewise for a node that has lost its coordinator.
  uint32_t host_lost_ms = 15'000;
  uint32_t find_coordinator_ms = 60'000;  // a node that starts: for its coordinator; then it ends
  uint32_t epoch_check_ms = 5'000;  // how often a coordinator, or who lost it, asks the root for the epoch
  uint32_t lease_renew_ms = 5'000;  // how often a load moves the counter of its pin
  uint32_t lease_ttl_ms = 60'000;   // a pin whose counter has not moved for that long has ended
  uint32_t load_gather_quiet_ms = 200;      // a load's roster is made when nobody has come for that long; or
  uint32_t load_gather_longest_ms = 3'000;  // for longer, as its nodes say, but no longer than that ...
  uint32_t load_gather_most_ms = 10'000;    // ... or that long after the first, or fifteen times the former
  uint32_t load_join_patience_ms = 25'000;  // for the coordinator's answer; then a node loads by itself
  // Likewise of a load that may fall back: whoever chooses reads all of a checkpoint first.
  uint32_t load_verify_patience_ms = 1'800'000;
  uint32_t chunk_deadline_ms = 5'000;  // who has sent nothing for that long is asked no more
};

// What the loads of a node take together: windows of clients, and chunks that are passed on.
inline constexpr uint64_t kDefaultLoadMemoryBytes = uint64_t{256} << 20;
inline constexpr uint64_t kMinLoadMemoryBytes = uint64_t{16} << 20;
inline constexpr uint64_t kMaxLoadMemoryBytes = uint64_t{1} << 40;

struct NodeFacts {  // what a node's roles know from the start
  uint32_t generation = 0;
  uint32_t epoch = 0;
  // The job only reads the root, beside another that trains. Then generation is its number under readers/.
  bool read_only = false;
  std::string job_id;                // the generation's token
  std::string host;                  // of this node, distinct in the job
  int32_t pid = 0;                   // told to clients
  uint32_t world_size = 0;           // 0: from the first client
  std::vector<Rank> expected_ranks;  // of this host, where known; else those that attach
  size_t message_bytes_max = transport::kMaxMessageBytes;  // of one message to another node
  uint64_t load_memory_bytes = kDefaultLoadMemoryBytes;    // at most, of all loads here (window_budget.h)
  bool grants_staging = false;  // clients are told so: the node answers StagingWanted
  RoleTimes times;
  storage::RetentionPolicy retention;                                  // the coordinator's
  std::shared_ptr<PlanSource> plans = std::make_shared<PlanSource>();  // never null
};

}  // namespace shoal::actors
