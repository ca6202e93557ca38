#include "admin/collector.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "base/helper_threads.h"
#include "storage/decisions/completion.h"

namespace shoal::admin {

namespace {

constexpr std::chrono::milliseconds kLook{200};  // interval between two readings of a lease

}  // namespace

uint64_t Collected::freed_bytes() const {
  uint64_t bytes = 0;
  for (const auto* list : {&deleted, &swept}) {
    for (const Item& item : *list) bytes += item.bytes;
  }
  return bytes;
}

Result<uint64_t> removable_bytes(const OpenRoot& root, const AttemptKey& key) {
  const auto listed = root.storage->list(storage::attempt_folder(key));
  if (listed.status().code() == Code::not_found) return uint64_t{0};  // another process has removed it
  SHOAL_RETURN_IF_ERROR(listed.status());
  uint64_t bytes = 0;
  for (const storage::ObjectInfo& object : *listed) {
    if (object.name != storage::kDecisionName) bytes += object.size;
  }
  return bytes;
}

Status Collector::settle(const storage::RetentionPlan& plan, Collected* out) {
  if (!options_.wait) {
    for (const storage::AttemptInfo& info : plan.undecided)
      out->undecided.push_back({info.key, "may still be written", 0});
    return ok_status();
  }
  abort_abandoned(plan.undecided, out);
  return end_leases(plan.leases);
}

// Waits until each lease has changed, and so is in use, or has not changed for its time and is removed.
Status Collector::end_leases(const std::vector<storage::Mark>& leases) {
  storage::LeaseWatch watch;
  std::set<std::pair<std::string, uint64_t>> standing;
  for (const storage::Mark& lease : leases) standing.emplace(lease.name, lease.counter);
  const int64_t ttl_ns = int64_t{options_.lease_ttl_ms} * 1'000'000;
  std::vector<storage::Mark> now = leases;
  storage::LeaseWatch::Reading read = {monotonic_now_ns(), monotonic_now_ns()};
  while (!standing.empty()) {
    for (const storage::Mark& ended : watch.ended(read, ttl_ns, now)) {
      SHOAL_RETURN_IF_ERROR(storage::remove_mark(*root_.storage, storage::MarkKind::pin, ended.name));
    }
    read.began_ns = monotonic_now_ns();
    SHOAL_ASSIGN_OR_RETURN(storage::MarkList listed,
                           storage::list_marks(*root_.storage, storage::MarkKind::pin));
    read.ended_ns = monotonic_now_ns();
    now.clear();
    for (storage::Mark& mark : listed.marks) {
      if (standing.contains({mark.name, mark.counter})) now.push_back(std::move(mark));
    }
    standing.clear();
    for (const storage::Mark& lease : now) standing.emplace(lease.name, lease.counter);
    if (!standing.empty()) std::this_thread::sleep_for(kLook);
  }
  return ok_status();
}

// Ends undecided attempts of earlier generations whose folders do not change. An attempt that the root proves
// complete becomes a checkpoint. Any other gets a tombstone, and its files are removed.
void Collector::abort_abandoned(const std::vector<storage::AttemptInfo>& undecided, Collected* out) {
  if (undecided.empty()) return;
  std::this_thread::sleep_for(std::chrono::milliseconds(options_.abandoned_after_ms));
  for (const storage::AttemptInfo& before : undecided) {
    auto after = storage::inspect_attempt(*root_.storage, before.key);
    if (!after.ok()) continue;  // the attempt is gone
    if (after->state == storage::AttemptInfo::State::undecided && after->fingerprint != before.fingerprint) {
      out->undecided.push_back({before.key, "still being written", 0});
      continue;
    }
    const storage::DecisionStamp stamp{random_128(), root_.id, unix_time_now_ns()};
    auto existing = storage::complete_attempt(*root_.storage, before.key, stamp);
    if (!existing.ok() && storage::is_unproven(existing.status())) {
      const std::string cause = "its generation left it undecided: " + existing.status().message();
      existing = storage::abort_attempt(*root_.storage, before.key, stamp, cause);
    }
    if (!existing.ok()) {
      out->failed.emplace_back(to_string(before.key), existing.status());
    } else if (existing->committed()) {
      out->completed.push_back({before.key,
                                after->rank_manifests != 0 ? "the manifests of all its ranks exist"
                                                           : "its rosters and shards prove it complete",
                                0});
    } else {
      sweep_all({before.key}, out);
    }
  }
}

void Collector::delete_all(const std::vector<storage::RetentionPlan::Item>& items, Collected* out) {
  const unsigned checkpoints = static_cast<unsigned>(std::clamp<size_t>(items.size(), 1, options_.jobs));
  std::vector<Result<storage::DeletionResult>> results(
      items.size(), Result<storage::DeletionResult>(storage::DeletionResult{}));
  base::for_each_by_threads(items.size(), checkpoints, [&](size_t i) {
    results[i] = storage::delete_checkpoint(
        *root_.storage, {items[i].key, items[i].why, root_.id, random_128(), unix_time_now_ns(),
                         std::max(1u, options_.jobs / checkpoints)});
  });
  for (size_t i = 0; i < items.size(); ++i) {
    const Result<storage::DeletionResult>& result = results[i];
    if (!result.ok()) {
      out->failed.emplace_back(to_string(items[i].key), result.status());
    } else if (result->outcome == storage::DeletionResult::Outcome::gone) {
      out->deleted.push_back({items[i].key, items[i].why, result->bytes});
    } else {
      auto& list = result->outcome == storage::DeletionResult::Outcome::held ? out->held : out->kept;
      list.push_back({items[i].key, result->why, 0});
    }
  }
}

void Collector::sweep_all(const std::vector<AttemptKey>& keys, Collected* out) {
  for (const AttemptKey& key : keys) {
    auto bytes = storage::sweep_attempt(*root_.storage, key);
    if (bytes.ok()) {
      out->swept.push_back({key, kWhySwept, *bytes});
    } else if (bytes.status().code() != Code::not_found) {
      out->failed.emplace_back(to_string(key), bytes.status());
    }
  }
}

void Collector::remove_all(const std::vector<std::string>& remains, Collected* out) {
  for (const std::string& folder : remains) {
    Status status = storage::remove_remains(*root_.storage, folder);
    if (!status.ok()) out->failed.emplace_back(folder, status);
  }
}

}  // namespace shoal::admin
