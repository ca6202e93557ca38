// Tilings for tests that draw their cases.
#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "shoal/layout.h"

namespace shoal::client {

// Of twelve devices in any order, with several devices for each tile.
inline TileSharding random_tiles(const DeviceMap& devices, std::mt19937_64& random) {
  std::vector<Device> order(12);
  std::iota(order.begin(), order.end(), Device{0});
  std::shuffle(order.begin(), order.end(), random);
  const Dims tiles = random() % 2 == 0 ? Dims{2, 3, 2} : Dims{3, 1, 4};
  return *TileSharding::tiled(devices, tiles, order, true);
}

}  // namespace shoal::client
