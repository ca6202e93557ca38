// Layouts of the jobs that the tests of many ranks run.
#pragma once

#include <vector>

#include "plan/layout.h"

namespace shoal {

// FSDP x TP within each of `stages` pipeline stages that have keys of their own; norms replicated over TP;
// step counters declared replicated; an empty tensor; an object of every rank.
std::vector<LayoutPtr> pipeline_job(uint32_t world_size, uint32_t stages, uint64_t tp);

// What a job of other ranks wants of that state of 64 ranks: every tensor, over one flat mesh.
std::vector<LayoutPtr> flat_job(uint32_t world_size, Rank rng_of = 63);

}  // namespace shoal
