// The global plan that DCP's default planner makes, as a pure function of all local plans: for a save by
// collectives, and for planners that start from it in their own create_global_plan.
//
// Source of the interface and its meaning: torch.distributed.checkpoint (2.13), default_planner.py:
// create_default_global_save_plan, dedupe_save_plans.
#pragma once

#include <cstdint>
#include <vector>

#include "shoal/dcp/save_planner.h"
#include "shoal/status.h"

namespace shoal::dcp {

// Which of the ranks whose plans have the same (fqn, chunk) keeps it.
enum class GlobalDedupe : uint8_t { least_loaded, lowest_rank };

// Every chunk in the plan of one rank, in the order of its local plan; planner_data and storage_data as they
// were. `least_loaded`: chunks with several holders are dealt by descending bytes, then (fqn, offset), to the
// holder with the fewest bytes so far; the lowest of them on a tie. Objects count as nothing. An object
// that is per_rank is called by its rank's name in the metadata.
// Code::invalid_argument, naming the fqn and where it applies the ranks: plans that disagree on a value's
// type, dtype or shape; the first chunks that overlap, or the first box that nobody has.
Result<GlobalSavePlan> default_global_plan(std::vector<SavePlan> all_plans,
                                           GlobalDedupe dedupe = GlobalDedupe::least_loaded);

}  // namespace shoal::dcp
