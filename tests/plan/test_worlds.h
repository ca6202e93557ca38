// Worlds for tests: made by hand from layouts, or drawn at random over all features of a layout.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "shoal/roster.h"
#include "shoal/tile_sharding.h"

namespace shoal::plan {

// The world whose rank r has layouts[r]; neighbours share a host.
World world_of(const std::vector<LayoutPtr>& by_rank, uint32_t ranks_a_host = 2);

// `size` ranks with one layout.
World uniform_world(LayoutBuilder builder, uint32_t size, uint32_t ranks_a_host = 2);

// Up to 12 ranks on random hosts; up to 8 values of a few thousand elements: on one or two meshes (listed and
// affine, all placements), as tiles of one to three devices a rank, in groups, as explicit boxes, as objects;
// some held by a part of their ranks only, so that not every world can be saved whole. Passes validate_world.
World random_world(std::mt19937_64& random);

Box random_box(std::mt19937_64& random, const Dims& shape);

// Tiles for a tensor of `dims` dimensions over some or all of the devices, in any order.
TileSharding random_tiles(std::mt19937_64& random, const DeviceMap& devices, size_t dims);

// Row-major numbers, in the tensor, of the elements of a box.
std::vector<uint64_t> element_numbers(const Box& box, const Dims& shape);

// The parts of a line of a golden text; none of an empty one.
std::vector<std::string> split_text(const std::string& text, char by);

}  // namespace shoal::plan
