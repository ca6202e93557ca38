// Runs kernel bodies on the host: every block, warp and lane of a launch, one after another. Two lanes or two
// warps that depend on each other's order give different results with different seeds.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gpu/kernels/warp.h"

namespace shoal::gpu {

class EmulatedWarp {
 public:
  template <class T>
  using PerLane = std::array<T, kWarpLanes>;

  EmulatedWarp(uint64_t index, uint64_t seed)
      : index_(index),
        lane_step_(static_cast<unsigned>(seed % (kWarpLanes / 2)) * 2 + 1),
        first_lane_(static_cast<unsigned>(seed / (kWarpLanes / 2) % kWarpLanes)) {}

  uint64_t index() const { return index_; }
  template <class Body>
  void each_lane(Body body) const {
    for (unsigned i = 0; i < kWarpLanes; ++i) body((first_lane_ + i * lane_step_) % kWarpLanes);
  }
  PerLane<uint64_t> shuffle_xor(const PerLane<uint64_t>& values, unsigned mask) const {
    PerLane<uint64_t> exchanged;
    for (unsigned lane = 0; lane < kWarpLanes; ++lane) exchanged[lane] = values[lane ^ mask];
    return exchanged;
  }

 private:
  uint64_t index_;
  unsigned lane_step_;  // odd, so that each lane has its turn
  unsigned first_lane_;
};

// Calls body(warp) for every warp of the smallest grid that has `warps` warps, also for those of the last
// block that have nothing to do. The seed draws the order of warps and of lanes. The caller's thread.
template <class Body>
void run_emulated(uint64_t warps, uint64_t seed, Body body) {
  const uint64_t grid = (warps + kWarpsPerBlock - 1) / kWarpsPerBlock * kWarpsPerBlock;
  std::vector<uint64_t> order(grid);
  uint64_t state = seed;
  const auto draw = [&state] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
  };
  for (uint64_t i = 0; i < grid; ++i) {
    const uint64_t other = draw() % (i + 1);
    order[i] = order[other];
    order[other] = i;
  }
  for (uint64_t index : order) {
    EmulatedWarp warp(index, draw());
    body(warp);
  }
}

}  // namespace shoal::gpu
