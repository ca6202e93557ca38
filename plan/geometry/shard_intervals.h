// How placements divide one tensor dimension: lists of intervals, refined mesh dimension by mesh dimension.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "shoal/mesh.h"

namespace shoal::plan {

// Global elements [begin, end) of one tensor dimension. A list of them is ascending, non-empty and merged.
struct Interval {
  uint64_t begin = 0, end = 0;
  friend auto operator<=>(const Interval&, const Interval&) = default;
};
using Intervals = std::vector<Interval>;

Intervals whole_interval(uint64_t size);  // none if size is 0
uint64_t total_length(const Intervals& intervals);

// What coordinate `index` of `count` holds of `local` under a placement that shards this tensor dimension.
Intervals shard_of(const Intervals& local, const Placement& placement, uint64_t count, uint64_t index);

// The coordinates of `count`, ascending, whose shard of `local` meets [begin, end): those alone, by
// arithmetic.
std::vector<uint64_t> shards_meeting(const Intervals& local, const Placement& placement, uint64_t count,
                                     Interval range);

// Row-major over the lists: every combination of one interval of each dimension.
std::vector<Box> boxes_of(std::span<const Intervals> by_dim);

}  // namespace shoal::plan
