// Which attempt of a listing a load takes, and which attempts must be decided first. Part of the Loader.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "storage/root/run_root.h"

namespace shoal::actors {

// The greatest committed attempt; nullopt if there is none. Returns an error if the decision of a greater
// attempt is damaged: only the user may go back past it, by naming a step.
Result<std::optional<AttemptKey>> newest(const storage::AttemptList& list);
// For a load that may fall back: the attempts that it found damaged, and why. An attempt that could not be
// read for another reason is not among them: it may be sound.
using DamagedAttempts = std::map<AttemptKey, Status>;
bool is_damage(const Status& why);
// The greatest committed attempt that is not damaged; nullopt if there is none. Adds damaged decisions of
// greater attempts to `damaged`. Returns an error if a greater attempt cannot be read for another reason.
Result<std::optional<AttemptKey>> newest_undamaged(const storage::AttemptList& list,
                                                   DamagedAttempts* damaged);
// The newest undecided attempt above `best` that the root may prove complete: ranks have published rank
// manifests for it, or its generation is below `generation`. Only attempts below `below` count: the others
// were tried.
std::optional<AttemptKey> newest_left(const storage::AttemptList& list, const std::optional<AttemptKey>& best,
                                      uint32_t generation, const std::optional<AttemptKey>& below);
// The newest committed attempt, and the decided attempts above it.
std::vector<storage::AttemptInfo> decided_from(const storage::AttemptList& list,
                                               const std::optional<AttemptKey>& best);

}  // namespace shoal::actors
