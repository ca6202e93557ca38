// Collector: carries deletions out for `shoal rm` and `shoal gc`, several at once, and says what became of
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
  unsigned jobs = 8;               // files or checkpoints removed at once
  uint32_t lease_ttl_ms = 60'000;  // as nodes have it
  uint32_t abandoned_after_ms = 10'000;
  bool wait = true;  // for leases to end, and for undecided attempts to be abandoned
};

struct Collected {
  struct Item {
    AttemptKey key;
    std::string why;
    uint64_t bytes = 0;  // freed
  };
  std::vector<Item> deleted, held, kept, swept, undecided;
  std::vector<Item> completed;                         // rank-local saves of which only the merge lacked
  std::vector<std::pair<std::string, Status>> failed;  // what, and why not

  uint64_t freed_bytes() const;
};

class Collector {
 public:
  Collector(const OpenRoot& root, const CollectorOptions& options) : root_(root), options_(options) {}

  // Ends leases that stand still, and says which attempts nobody finishes: blocks up to lease_ttl_ms where
  // there are such, and the options say to wait. Then it is time to plan.
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
