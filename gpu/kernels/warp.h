// How one kernel source runs on a GPU and on the host.
//
// A kernel body is a function template over a Warp: 32 lanes that advance together. A body changes lanes only
// within Warp::each_lane, and keeps what a lane remembers in a PerLane. What a body does between two calls of
// each_lane must be the same for all lanes of the warp: a loop there runs equally often in each.
//
//   on a GPU      each thread is one lane: each_lane calls its argument once, a PerLane is a register, and
//                 shuffle_xor is __shfl_xor_sync
//   on the host   EmulatedWarp (emulator.h) calls the argument of each_lane 32 times, in an order that a seed
//                 draws, and a PerLane is an array
//
// A body uses no shared memory and no barrier. Warps are independent of each other.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define SHOAL_KERNEL __host__ __device__ __forceinline__
#define SHOAL_KERNEL_CALLED \
  inline __host__ __device__ __noinline__  // compiled once, where a call costs little
#else
#define SHOAL_KERNEL inline
#define SHOAL_KERNEL_CALLED inline
#endif

namespace shoal::gpu {

inline constexpr unsigned kWarpLanes = 32;
// Blocks are small and without shared memory, so that the processors of a GPU are evenly filled.
inline constexpr unsigned kWarpsPerBlock = 4;

#if defined(__CUDACC__)

// The warp of the calling thread. Blocks must have kWarpsPerBlock * kWarpLanes threads in one dimension.
class DeviceWarp {
 public:
  template <class T>
  struct PerLane {
    T value{};
    SHOAL_KERNEL T& operator[](unsigned) { return value; }
    SHOAL_KERNEL const T& operator[](unsigned) const { return value; }
  };

  // The number of this warp in the grid.
  SHOAL_KERNEL uint64_t index() const {
#if defined(__CUDA_ARCH__)
    return uint64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / kWarpLanes;
#else
    return 0;
#endif
  }
  template <class Body>
  SHOAL_KERNEL void each_lane(Body body) const {
#if defined(__CUDA_ARCH__)
    body(threadIdx.x % kWarpLanes);
#else
    (void)body;
#endif
  }
  // Each lane gets the value of the lane whose number differs in `mask`.
  SHOAL_KERNEL PerLane<uint64_t> shuffle_xor(const PerLane<uint64_t>& values, unsigned mask) const {
#if defined(__CUDA_ARCH__)
    return {__shfl_xor_sync(0xffffffffu, static_cast<unsigned long long>(values.value), mask)};
#else
    (void)mask;
    return values;
#endif
  }
};

#endif

}  // namespace shoal::gpu
