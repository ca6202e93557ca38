// How placements divide one tensor dimension: lists of intervals, which each mesh dimension refines.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "shoal/mesh.h"

namespace shoal::plan {

// Global elements [begin, end) of one tensor dimension. A list is ascending, its intervals are not empty, and
// adjacent ones are merged.
struct Interval {
  uint64_t begin = 0, end = 0;
  friend auto operator<=>(const Interval&, const Interval&) = default;
};
using Intervals = std::vector<Interval>;

Intervals whole_interval(uint64_t size);  // an empty list if size is 0
uint64_t total_length(const Intervals& intervals);

// The part of `local` that coordinate `index` of `count` holds under a placement that shards this tensor
// dimension.
Intervals shard_of(const Intervals& local, const Placement& placement, uint64_t count, uint64_t index);

// The coordinates below `count` whose shard of `local` overlaps `range`, ascending. Computed without a visit
// to the other coordinates.
std::vector<uint64_t> shards_meeting(const Intervals& local, const Placement& placement, uint64_t count,
                                     Interval range);

// Every combination of one interval per dimension, row-major over the lists.
std::vector<Box> boxes_of(std::span<const Intervals> by_dim);

}  // namespace shoal::plan
