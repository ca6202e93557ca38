// Copies in an object store that `shoal copy` or a drain has not completed (storage/root/attempt_marks.h). In
// a folder their remains are those that RetentionPlan::remains names.
#pragma once

#include <cstdint>
#include <vector>

#include "shoal/metadata.h"
#include "storage/storage.h"

namespace shoal::storage {

struct UnfinishedCopy {
  AttemptKey key;
  uint64_t files = 0, bytes = 0;
  bool is_leased = false;  // a copy may be running: it holds a lease, which may also be left by one that died
};
// Ascending. Empty where folders can be renamed.
Result<std::vector<UnfinishedCopy>> list_unfinished_copies(Storage& storage);

// Removes the objects of such a copy, its mark last, so that an interrupted removal can be repeated. Returns
// the bytes removed. A copy that begins meanwhile ends with Code::busy; one that was suspended for longer
// than its lease finds files missing. Code::busy: it is leased, or was completed meanwhile. Code::not_found:
// there is none.
Result<uint64_t> remove_unfinished_copy(Storage& storage, const AttemptKey& key);

}  // namespace shoal::storage
