// Layouts of the jobs in tests with many ranks.
#pragma once

#include <random>
#include <vector>

#include "shoal/layout.h"
#include "shoal/metadata.h"

namespace shoal::sim {

// FSDP x TP within each of `stages` pipeline stages with distinct keys. Norms are replicated over TP, step
// counters are declared replicated. There are an empty tensor and an object per rank.
std::vector<LayoutPtr> pipeline_job(uint32_t world_size, uint32_t stages, uint64_t tp);

// The layout of a job with other ranks that loads this state of 64 ranks: every tensor, over one flat mesh.
std::vector<LayoutPtr> flat_job(uint32_t world_size, Rank rng_of = 63);

// A model so small that one rank writes all of it: each rank holds two tensors, replicated.
std::vector<LayoutPtr> replicated_job(uint32_t world_size);

// A random job that can be saved whole. It has one or two groups of ranks with separate values, of any dtype.
// The values are on meshes of one or two dimensions with any placements, in groups, as tiles of one or two
// devices per rank, or as uneven explicit boxes. Some values belong to both groups, each group with its own
// mesh. Every rank has objects.
std::vector<LayoutPtr> drawn_job(std::mt19937_64& random, uint32_t world_size);

// All values of a checkpoint on one group of ranks or spread over two, each with a random sharding, and the
// per-rank objects. All ranks together load all of it.
std::vector<LayoutPtr> drawn_job_of(std::mt19937_64& random, const std::vector<TensorMetadata>& values,
                                    uint32_t world_size);

// All values of a checkpoint, each over a flat mesh of the ranks, and the per-rank objects. Scalars are
// replicated.
std::vector<LayoutPtr> flat_job_of(const std::vector<TensorMetadata>& values, uint32_t world_size,
                                   Placement placement = Placement::shard(0));

}  // namespace shoal::sim
