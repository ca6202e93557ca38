// Retention: which checkpoints stay, and how the others go. docs/explanation/retention.md.
//
// A checkpoint goes in this order: its manifest is replaced by a tombstone, durably; then pins are listed;
// where none is left its shards are removed, durably; its folder goes last. Each step may be repeated, by
// anybody, from any point at which somebody else stopped. A load writes its pin before it reads the manifest,
// so that one of the two sees the other. Any thread; several processes at once.
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

// What any rule keeps stays. Without a rule everything does.
struct RetentionPolicy {
  uint32_t keep_last = 0;   // the newest so many, as `latest` orders; 0: no such rule
  uint64_t keep_every = 0;  // the newest of each step that this number divides; 0: no such rule
  uint64_t keep_for_s =
      0;  // what was committed no longer ago, by the clocks of who committed and of who asks
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
  std::vector<AttemptKey> finish;  // deleted, not wholly gone
  std::vector<AttemptKey> sweep;   // aborted, with files left
  std::vector<AttemptInfo>
      undecided;  // of generations before the highest: abandoned, where nobody writes any more
  std::vector<std::string> remains;                    // folders for remove_remains
  std::vector<Mark> leases;                            // pins that end when their counters stand still
  std::vector<std::pair<AttemptKey, Status>> damaged;  // never touched
};

// What is known of decided attempts from an earlier plan; each is looked at anew before it is deleted. One
// thread.
struct KnownAttempts {
  struct Known {
    AttemptInfo::State state = AttemptInfo::State::undecided;
    int64_t unix_time_ns = 0;  // 0: not asked for yet
    bool reads_back = false;   // its manifest was read once, and was whole
  };
  std::map<AttemptKey, Known> attempts;
};

// Reads the root, and works out what `policy` keeps at `unix_time_ns`. Always kept: the newest checkpoint,
// the newest of those that were verified, what the highest generation loaded, what a pin or a tag names. A
// pin or tag that cannot be read might name any: an error by its name. A checkpoint whose manifest does not
// read back is left alone, and is none of those that a rule counts. `known` may be null.
Result<RetentionPlan> plan_retention(Storage& storage, const RetentionPolicy& policy, int64_t unix_time_ns,
                                     KnownAttempts* known);

inline constexpr unsigned kMaxDeletionThreads = 16;

struct Deletion {
  AttemptKey key;
  std::string cause;  // stands in the tombstone
  RootId root_id;
  Nonce nonce;
  int64_t unix_time_ns = 0;
  unsigned threads = 1;  // files removed at once
};
struct DeletionResult {
  enum class Outcome : uint8_t {
    gone,  // by this call or an earlier one
    held,  // deleted, invisible to loads; its shards stay until a pin ends
    kept,  // nothing was changed
  } outcome = Outcome::gone;
  std::string why;     // held or kept
  uint64_t bytes = 0;  // removed by this call
  uint32_t files = 0;
};
// Deletes one checkpoint, or goes on where an earlier deletion stopped. Kept: what is pinned or tagged, what
// is undecided or was aborted, and the only checkpoint that is verified. Whether it may go by policy is the
// caller's.
Result<DeletionResult> delete_checkpoint(Storage& storage, const Deletion& deletion);
// Why delete_checkpoint would keep a committed checkpoint now; "" where it would not.
Result<std::string> why_not_deleted(Storage& storage, const AttemptKey& key);

// Removes a folder of RetentionPlan::remains with what lies in it; OK where somebody uses or has removed it.
Status remove_remains(Storage& storage, const std::string& folder);

// Leases by one observer's clock.
class LeaseWatch {
 public:
  // Takes in the leases of one listing at `now_ns`, monotonic. Returns those whose counters this watch has
  // seen standing still for `ttl_ns`.
  std::vector<Mark> ended(int64_t now_ns, int64_t ttl_ns, const std::vector<Mark>& leases);

 private:
  struct Seen {
    uint64_t counter = 0;
    int64_t since_ns = 0;
  };
  std::map<std::string, Seen> seen_;
};

}  // namespace shoal::storage
