// The global plan that DCP's default planner makes, as a pure function of all local plans. Saves in mode
// collective use it, and planners can call it in their own create_global_plan.
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

// Assigns every chunk to the plan of one rank. A plan keeps the order of the local plan, planner_data and
// storage_data. `least_loaded`: chunks with several holders are assigned in the order of descending bytes,
// then (fqn, offset). Each goes to the holder with the fewest bytes so far; on a tie to the lowest rank.
// Objects count as 0 bytes. In the metadata, a per_rank object has the name with its rank.
//
// Code::invalid_argument names the fqn, and the ranks where they apply: plans disagree on a value's type,
// dtype or shape, two chunks overlap, or no rank has a box of the tensor.
Result<GlobalSavePlan> default_global_plan(std::vector<SavePlan> all_plans,
                                           GlobalDedupe dedupe = GlobalDedupe::least_loaded);

}  // namespace shoal::dcp
