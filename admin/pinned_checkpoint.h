// Chooses one checkpoint of a root and pins it, for commands that read it.
#pragma once

#include <memory>
#include <string>

#include "admin/pin_lease.h"
#include "admin/root_reader.h"

namespace shoal::admin {

struct PinnedCheckpoint {
  storage::AttemptView view;      // of a checkpoint
  std::unique_ptr<PinLease> pin;  // null: `not_pinned` says why, such as that the user may not write
  Status not_pinned;
};

// The newest checkpoint among the chosen attempts; without a step or a tag, the latest. `holder` says who
// reads. Code::not_found if there is none, and the damage if its decision cannot be read.
Result<PinnedCheckpoint> pin_checkpoint(const OpenRoot& root, const AttemptChoice& choice,
                                        const std::string& holder);

}  // namespace shoal::admin
