// Layouts of the jobs in tests with many ranks.
#pragma once

#include <random>
#include <vector>

#include "shoal/layout.h"
#include "shoal/metadata.h"

namespace shoal::sim {

// FSDP x TP within each of `stages` pipeline stages that have keys of their own; norms replicated over TP;
// step counters declared replicated; an empty tensor; an object of every rank.
std::vector<LayoutPtr> pipeline_job(uint32_t world_size, uint32_t stages, uint64_t tp);

// What a job of other ranks wants of that state of 64 ranks: every tensor, over one flat mesh.
std::vector<LayoutPtr> flat_job(uint32_t world_size, Rank rng_of = 63);

// A model so small that one rank writes all of it: each rank holds two tensors, replicated.
std::vector<LayoutPtr> replicated_job(uint32_t world_size);

// A job drawn at random: one or two groups of ranks with values of their own, on meshes of one or two
// dimensions with any placements, in groups, as tiles of one or two devices a rank, as uneven explicit boxes;
// of any dtype; some that both groups have, each on a mesh of its own; and objects of every rank. All of it
// can be saved whole.
std::vector<LayoutPtr> drawn_job(std::mt19937_64& random, uint32_t world_size);

// All values of a checkpoint on one group of ranks or spread over two, each sharded as drawn at random, and
// what each rank had of its own. All ranks together want all of it.
std::vector<LayoutPtr> drawn_job_of(std::mt19937_64& random, const std::vector<TensorMetadata>& values,
                                    uint32_t world_size);

// All values of a checkpoint, each over a flat mesh of the ranks, and what each rank had of its own. Scalars
// are replicated.
std::vector<LayoutPtr> flat_job_of(const std::vector<TensorMetadata>& values, uint32_t world_size,
                                   Placement placement = Placement::shard(0));

}  // namespace shoal::sim
