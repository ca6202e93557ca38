// Collector: executes the deletions of `shoal rm` and `shoal gc`, several at once, and reports the result of
// each.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "admin/root_reader.h"
#include "storage/retention/retention.h"

namespace shoal::admin {

struct CollectorOptions {
  unsigned jobs = 8;               // number of files or checkpoints removed at once
  uint32_t lease_ttl_ms = 60'000;  // must equal the setting of the nodes, and so must the next
  uint32_t abandoned_after_ms = 10'000;
  bool wait = true;  // waits for leases to end and for undecided attempts to become abandoned
};

// Why a checkpoint is deleted whose deletion an earlier command or node began, and why files are swept.
inline constexpr const char* kWhyFinished = "an earlier deletion";
inline constexpr const char* kWhySwept = "leftovers of an unfinished save or deletion";

struct Collected {
  struct Item {
    AttemptKey key;
    std::string why;
    uint64_t bytes = 0;  // freed
  };
  std::vector<Item> deleted, held, kept, swept, undecided;
  std::vector<Item> completed;                         // complete rank-local saves that were merged
  std::vector<std::pair<std::string, Status>> failed;  // what failed, and why

  uint64_t freed_bytes() const;
};

// The bytes of an attempt that its deletion, or the removal of its leftovers, would free now.
Result<uint64_t> removable_bytes(const OpenRoot& root, const AttemptKey& key);

class Collector {
 public:
  Collector(const OpenRoot& root, const CollectorOptions& options) : root_(root), options_(options) {}

  // Removes leases that no longer change, and aborts or completes abandoned attempts. If there are any and
  // the options say to wait, blocks up to lease_ttl_ms. Call it before you make the plan to execute.
  Status settle(const storage::RetentionPlan& plan, Collected* out);
  void delete_all(const std::vector<storage::RetentionPlan::Item>& items, Collected* out);
  void sweep_all(const std::vector<AttemptKey>& keys, Collected* out);
  void remove_all(const std::vector<std::string>& remains, Collected* out);

 private:
  Status end_leases(const std::vector<storage::Mark>& leases);
  void abort_abandoned(const std::vector<storage::AttemptInfo>& undecided, Collected* out);

  const OpenRoot& root_;
  const CollectorOptions options_;
};

}  // namespace shoal::admin
