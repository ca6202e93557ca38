// Retention: which checkpoints stay, and how the others are deleted. docs/explanation/retention.md.
//
// Deletion proceeds in this order: a tombstone replaces the manifest, durably; pins are listed; if none
// exists, the shards are removed, durably; last, the folder is removed. Any process may repeat each step,
// from any point at which another process stopped. A load writes its pin before it reads the manifest, so
// either the load sees the tombstone or the deletion sees the pin. Any thread; several processes at once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "storage/decisions/decision.h"
#include "storage/retention/marks.h"
#include "storage/root/run_root.h"

namespace shoal::storage {

// A checkpoint stays if any rule keeps it. Without a rule all checkpoints stay.
struct RetentionPolicy {
  uint32_t keep_last = 0;   // the newest so many, in the order of `latest`; 0: no such rule
  uint64_t keep_every = 0;  // the newest checkpoint of each step that this number divides; 0: no such rule
  // Keeps what was committed in the last so many seconds; 0: no such rule. Compares the clock of the
  // committing process with that of the caller.
  uint64_t keep_for_s = 0;
  // Not a rule: of the newest so many deleted checkpoints the tombstone stays, so that a rank that asks late
  // can still learn that its save was committed (docs/explanation/retention.md).
  uint32_t keep_tombstones = 0;
  bool any() const { return keep_last != 0 || keep_every != 0 || keep_for_s != 0; }
  friend bool operator==(const RetentionPolicy&, const RetentionPolicy&) = default;
};

struct RetentionPlan {
  struct Item {
    AttemptKey key;
    std::string why;
  };
  std::vector<Item> keep;          // checkpoints, ascending, and why each stays
  std::vector<Item> remove;        // checkpoints, ascending, and why each goes
  std::vector<AttemptKey> finish;  // deleted, but some files remain
  std::vector<AttemptKey> forget;  // deleted before the newest RetentionPolicy::keep_tombstones
  std::vector<AttemptKey> sweep;   // aborted, but some files remain
  // Of generations below the highest. Such an attempt is abandoned unless a process still writes to it.
  std::vector<AttemptInfo> undecided;
  std::vector<std::string> remains;                    // folders for remove_remains; of no pinned attempt
  std::vector<Mark> leases;                            // pins that end if their counters no longer change
  std::vector<std::pair<AttemptKey, Status>> damaged;  // never touched
};

// What an earlier plan learned about decided attempts. A deletion reads each attempt again. One thread.
struct KnownAttempts {
  struct Known {
    AttemptInfo::State state = AttemptInfo::State::undecided;
    int64_t unix_time_ns = 0;  // 0: not read yet
    bool reads_back = false;   // its manifest was read once without error
  };
  std::map<AttemptKey, Known> attempts;
};

// Reads the root and computes what `policy` keeps at `unix_time_ns`. The plan always keeps the newest
// checkpoint, the newest verified one, those that the highest generation loaded, and those that a pin or a
// tag names. A pin or tag that cannot be read might name any checkpoint, so it is an error that contains its
// name. A checkpoint whose manifest cannot be read is left alone and does not count for any rule. `known` may
// be null.
Result<RetentionPlan> plan_retention(Storage& storage, const RetentionPolicy& policy, int64_t unix_time_ns,
                                     KnownAttempts* known);

inline constexpr unsigned kMaxDeletionThreads = 16;

struct Deletion {
  AttemptKey key;
  std::string cause;  // written into the tombstone
  RootId root_id;
  Nonce nonce;
  int64_t unix_time_ns = 0;
  unsigned threads = 1;          // number of files removed at once
  bool keeps_tombstone = false;  // the folder stays, with nothing in it but the tombstone
};
struct DeletionResult {
  enum class Outcome : uint8_t {
    gone,  // by this call or an earlier one
    held,  // deleted and invisible to loads; the shards stay until a pin ends
    kept,  // nothing was changed
  } outcome = Outcome::gone;
  std::string why;     // set for held and kept
  uint64_t bytes = 0;  // removed by this call
  uint32_t files = 0;
};
// Deletes one checkpoint, or continues an earlier deletion. Keeps a checkpoint that is pinned or tagged, an
// attempt that is undecided or aborted, and the only verified checkpoint. The caller decides whether the
// policy allows the deletion.
Result<DeletionResult> delete_checkpoint(Storage& storage, const Deletion& deletion);
// Why delete_checkpoint would keep a committed checkpoint now; "" if it would delete it.
Result<std::string> why_not_deleted(Storage& storage, const AttemptKey& key);

// Removes a folder of RetentionPlan::remains and its contents. OK if another process uses it or has removed
// it.
Status remove_remains(Storage& storage, const std::string& folder);

// Detects expired leases by the clock of one observer.
class LeaseWatch {
 public:
  // When a listing was read, by a monotonic clock. It takes long if the storage is slow; what a lease did
  // before it was read counts for it, and what it did afterwards nobody has seen.
  struct Reading {
    int64_t began_ns = 0, ended_ns = 0;
  };
  // Takes the leases of one listing. Returns those whose counters have not changed for `ttl_ns`.
  std::vector<Mark> ended(const Reading& read, int64_t ttl_ns, const std::vector<Mark>& leases);

 private:
  struct Seen {
    uint64_t counter = 0;
    int64_t since_ns = 0;
  };
  std::map<std::string, Seen> seen_;
};

}  // namespace shoal::storage
