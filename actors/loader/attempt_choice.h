// Which attempt of a listing is loaded, and what must be decided before. Part of the Loader.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "storage/root/run_root.h"

namespace shoal::actors {

// The greatest committed attempt; nullopt if there is none. An attempt above it whose decision is damaged is
// an error: going back silently is for nobody but the user to choose, by naming a step.
Result<std::optional<AttemptKey>> newest(const storage::AttemptList& list);
// Of a load that may fall back: what it has found damaged, by key. Never a thing that could not be read for
// another reason, and may be sound.
using DamagedAttempts = std::map<AttemptKey, Status>;
bool is_damage(const Status& why);
// The greatest committed attempt that is not damaged; nullopt if there is none. Damaged decisions above it
// are added to `damaged`. An attempt above it that cannot be read, though nothing says that it is damaged, is
// an error.
Result<std::optional<AttemptKey>> newest_undamaged(const storage::AttemptList& list,
                                                   DamagedAttempts* damaged);
// The newest undecided attempt above `best` that the root may prove complete: ranks have published manifests
// of their own for it, or its generation is below this one. `below`: those from this one up were tried.
std::optional<AttemptKey> newest_left(const storage::AttemptList& list, const std::optional<AttemptKey>& best,
                                      uint32_t generation, const std::optional<AttemptKey>& below);
// The newest committed attempt, and what was decided above it.
std::vector<storage::AttemptInfo> decided_from(const storage::AttemptList& list,
                                               const std::optional<AttemptKey>& best);

}  // namespace shoal::actors
