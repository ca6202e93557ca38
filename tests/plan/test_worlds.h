// Worlds for tests: made by hand from layouts, or drawn at random over all features of a layout.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "shoal/roster.h"
#include "shoal/tile_sharding.h"

namespace shoal::plan {

inline const Placement kReplicate = Placement::replicate();
inline const Placement kShard0 = Placement::shard(0);

// The world in which rank r has layouts[r]. Neighbouring ranks share a host.
World world_of(const std::vector<LayoutPtr>& by_rank, uint32_t ranks_a_host = 2);

// `size` ranks with one layout.
World uniform_world(LayoutBuilder builder, uint32_t size, uint32_t ranks_a_host = 2);

// A random world that passes validate_world. It has up to 12 ranks on random hosts and up to 8 values of a
// few thousand elements. Values are on one or two meshes (listed and affine, all placements), as tiles of one
// to three devices per rank, in groups, as explicit boxes, or as objects. Some are held by only some of their
// ranks, so not every world can be saved whole.
World random_world(std::mt19937_64& random);

Box random_box(std::mt19937_64& random, const Dims& shape);

// Random tiles for a tensor of `dims` dimensions over some or all of the devices, in any order.
TileSharding random_tiles(std::mt19937_64& random, const DeviceMap& devices, size_t dims);

// Row-major indexes in the tensor of the elements of a box.
std::vector<uint64_t> element_numbers(const Box& box, const Dims& shape);

// The parts of a line of a golden file; none for an empty line.
std::vector<std::string> split_text(const std::string& text, char by);
Dims numbers_in(const std::string& text);  // with spaces between them

}  // namespace shoal::plan
