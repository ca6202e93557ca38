// From what a rank staged to the shard files that its plan wants of it.
#pragma once

#include <vector>

#include "actors/operation.h"
#include "local/messages/messages.h"
#include "shoal/save_plan.h"

namespace shoal::actors {

// One WriteShard operation a file of the plan, in order of the files. Code::invalid_argument names the rank
// and the value that was not staged (a rank lacks part of its share), or ids that do not fit the roster in
// force.
Result<std::vector<operation::WriteShard>> shard_writes(const Layout& layout, const SavePlan& plan,
                                                        const AttemptKey& key, ClientId client,
                                                        const local::Staged& staged);

}  // namespace shoal::actors
