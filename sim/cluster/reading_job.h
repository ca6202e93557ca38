// ReadingJob: a job that only reads the root of a job that trains. Its ranks load the newest checkpoint once,
// by nodes of their own, which nothing disturbs. It changes nothing in the root but its pins and its choice.
//
//   reader-finds         it finds the newest checkpoint that existed when it began, unless that was deleted
//                        or is damaged; all ranks find the same
//   reader-is-possible   it fails only if its checkpoint was deleted or damaged, or if there is none
//   reader-ends-in-time
//
// Bytes are compared with those that were saved (StoredPayload).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "sim/cluster/counted_loads.h"
#include "sim/cluster/stored_payload.h"

namespace shoal::sim {

class ReadingJob {
 public:
  struct Job {
    std::vector<LayoutPtr> layouts;  // one per pipeline stage
    uint32_t ranks = 0, ranks_per_host = 1;
    LoadMethod method = LoadMethod::automatic;
    bool falls_back = false;
    actors::Timeouts timeouts = {};
    uint64_t seed = 0;
  };
  // Begins at once. `of` is a run of the job that trains, and `payload` is its payload. The arguments outlive
  // all scheduled events, and so must this object. `paths` may be null.
  ReadingJob(EventHeap& events, const Profile& profile, VirtualCluster& of, const StoredPayload& payload,
             Job job, PathCounts* paths);

  bool done() const { return loads_->done(); }
  // Checks what has ended. The first violation.
  const std::optional<Violation>& check();
  uint64_t trace_hash() const { return cluster_->trace_hash(); }

 private:
  void violated(std::string oracle, const std::string& what);
  void check_rank(Rank rank);

  EventHeap& events_;
  const CountedRoot& root_;
  const Job job_;
  const actors::TimeNs began_;
  const std::vector<AttemptKey> existed_;
  StoredPayload payload_;
  std::unique_ptr<VirtualCluster> cluster_;
  std::unique_ptr<CountedLoads> loads_;
  std::optional<AttemptKey> found_;
  std::vector<bool> checked_;  // by rank
  std::optional<Violation> violation_;
};

}  // namespace shoal::sim
