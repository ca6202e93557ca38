// The options of a Checkpointer from variables that need not be those of the process.
#pragma once

#include "client/launch/job_environment.h"
#include "shoal/checkpointer.h"
#include "shoal/status.h"

namespace shoal::client {

// CheckpointerOptions::from_environment with these variables instead of those of the process.
Result<CheckpointerOptions> options_from(const Variables& variables);

}  // namespace shoal::client
