// Conversions of placements and boxes between Python tuples and the client's types.
#pragma once

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "shoal/mesh.h"

namespace shoal::python {

// (kind, tensor dimension, split factor); kind: 0 replicate, 1 shard, 2 strided shard.
using PlacementTuple = std::tuple<int, uint32_t, uint64_t>;
std::vector<Placement> placements_of_tuples(const std::vector<PlacementTuple>& tuples);

using BoxPair = std::pair<Dims, Dims>;  // offsets and sizes
std::vector<BoxPair> pairs_of_boxes(const std::vector<Box>& boxes);

}  // namespace shoal::python
