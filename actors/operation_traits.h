// What role hosts must know of each operation: one table, which a new operation joins before it
// compiles.
#pragma once

#include <cstdint>
#include <string_view>

#include "actors/operation.h"

namespace shoal::actors {

// Whether an operation changes the root or the catalog. A job that only reads may carry out those that change
// neither (`reads`, also if they use only memory), and those that keep its own pins and load choices. The
// simulated failure `reads-fail` fails all that are `reads`.
enum class RootUse : uint8_t { reads, keeps_what_is_read, writes };

// The threads that carry an operation out, so that no decision waits for a shard or for a deletion. Two
// operations of the class duty that hang hold up every decision of a node.
enum class ThreadClass : uint8_t {
  bulk,        // moves bytes of checkpoints, removes files of aborted attempts, or opens many files
  duty,        // all others: decisions wait for them, so they must end soon
  background,  // retention: may end minutes late, behind deletions, because nobody waits for it
};
// The number of threads of each class in a node, live and simulated.
inline constexpr uint32_t kBulkThreads = 4, kDutyThreads = 2, kBackgroundThreads = 2;

struct OperationTraits {
  std::string_view name;
  RootUse root_use = RootUse::writes;
  ThreadClass threads = ThreadClass::duty;
  bool creates_files = false;  // or objects of the root: it fails if the root's disk is full
  bool may_commit = false;     // it may publish the manifest of an attempt
};
OperationTraits traits_of(const Operation& operation);

}  // namespace shoal::actors
