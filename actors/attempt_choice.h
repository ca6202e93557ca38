// Which attempt of a listing is loaded, and what must be decided before. Part of the Loader.
#pragma once

#include <optional>
#include <vector>

#include "storage/run_root.h"

namespace shoal {

// The greatest committed attempt; nullopt if there is none. An attempt above it whose decision is damaged is
// an error: going back silently is for nobody but the user to choose, by naming a step.
Result<std::optional<AttemptKey>> newest(const AttemptList& list);
// The newest undecided attempt above `best` that the root may prove complete: ranks have published manifests
// of their own for it, or its generation is below this one. `below`: those from this one up were tried.
std::optional<AttemptKey> newest_left(const AttemptList& list, const std::optional<AttemptKey>& best,
                                      uint32_t generation, const std::optional<AttemptKey>& below);
// The newest committed attempt, and what was decided above it.
std::vector<AttemptInfo> decided_from(const AttemptList& list, const std::optional<AttemptKey>& best);

}  // namespace shoal
