// Integer arithmetic of the simulator. Without floating point, times and draws are equal on every compiler
// and machine.
#pragma once

#include <cstdint>

namespace shoal::sim {

__extension__ using Wide = unsigned __int128;

inline constexpr uint64_t kNsPerSecond = 1'000'000'000;

// a * b / c, rounded down. Precondition: the quotient fits.
inline uint64_t multiply_divide(uint64_t a, uint64_t b, uint64_t c) {
  return static_cast<uint64_t>(Wide{a} * b / c);
}

// The time of `count` steps of `each_ns`.
inline int64_t times(uint64_t count, int64_t each_ns) {
  return static_cast<int64_t>(count) * each_ns;
}

inline int64_t nanoseconds(uint64_t ms) {
  return static_cast<int64_t>(ms) * 1'000'000;
}

// The transfer time of `bytes` at a rate. A rate of 0 means unlimited and takes 0 ns.
inline int64_t transfer_ns(uint64_t bytes, uint64_t bytes_per_s) {
  return bytes_per_s == 0 ? 0 : static_cast<int64_t>(multiply_divide(bytes, kNsPerSecond, bytes_per_s));
}

inline uint64_t mix64(uint64_t z) {  // the finalizer of splitmix64
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace shoal::sim
