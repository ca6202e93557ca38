// Checkpoints that retention may delete.
#pragma once

#include <string>

#include "storage/retention/retention.h"
#include "tests/storage/decisions/decision_samples.h"

namespace shoal::storage {

// A small checkpoint with existing shards, committed this many seconds after 1970.
inline void commit_sample(Storage& storage, const AttemptKey& key, int64_t at_s = 1'700'000'000) {
  for (Rank rank : {0u, 1u}) {
    auto created = storage.create_exclusive(shard_path(key, rank, 0), Bytes(100 + rank));
    SHOAL_CHECK(created.ok());
  }
  Decision decision = sample_manifest(key);
  decision.unix_time_ns = at_s * 1'000'000'000;
  auto published = publish_decision(storage, decision);
  SHOAL_CHECK(published.ok() && published->committed());
}

inline Deletion deletion_of(const AttemptKey& key, uint64_t nonce = 900, unsigned threads = 1) {
  return {key, "no rule keeps it", nonce_of(77), nonce_of(nonce), 1'800'000'000'000'000'000, threads};
}

inline Mark mark_of(std::string name, const AttemptKey& key, bool is_lease = false, uint64_t counter = 0) {
  return {std::move(name), key, is_lease, counter, "a test", 1, nonce_of(5)};
}
inline Mark pin_of(uint64_t id, const AttemptKey& key, bool is_lease = false, uint64_t counter = 0) {
  return mark_of(pin_name(nonce_of(id)), key, is_lease, counter);
}

inline std::vector<uint64_t> steps_of(const std::vector<RetentionPlan::Item>& items) {
  std::vector<uint64_t> steps;
  for (const RetentionPlan::Item& item : items) steps.push_back(item.key.step);
  return steps;
}

}  // namespace shoal::storage
