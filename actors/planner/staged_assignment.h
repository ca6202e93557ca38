// Finds the bytes of a rank's plan in what the rank staged.
#pragma once

#include <vector>

#include "actors/operation.h"
#include "local/messages/messages.h"
#include "shoal/save_plan.h"

namespace shoal::actors {

// Returns one WriteShard operation for each file of the plan, in the order of the files.
// Code::invalid_argument: the rank did not stage a part of its assignment, and the message names rank and
// value; or the ids in `staged` differ from those of the roster in force.
Result<std::vector<operation::WriteShard>> shard_writes(const Layout& layout, const SavePlan& plan,
                                                        const AttemptKey& key, ClientId client,
                                                        const local::Staged& staged);

}  // namespace shoal::actors
