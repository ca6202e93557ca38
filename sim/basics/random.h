// Random: the random numbers of the simulator. It uses splitmix64 (https://prng.di.unimi.it/splitmix64.c) and
// fixed-point arithmetic, because the distributions of the standard library differ between implementations.
#pragma once

#include <cstdint>

#include "sim/basics/integer_math.h"

namespace shoal::sim {

// Exponential and Weibull times (see below) for the uniform draw `u` / 2^64; u = 0 counts as 1. A result that
// does not fit becomes the greatest int64_t.
uint64_t exponential_at(uint64_t u, uint64_t mean);
uint64_t weibull_at(uint64_t u, uint64_t scale, uint32_t shape_permille);

// The users of a scenario's seed. Each has its own stream, so its draws do not depend on those of the others.
enum class Stream : uint8_t {
  storage = 0,
  arrivals = 1,
  hazards = 2,
  failures = 3,
  stragglers = 4,
  returns = 5,
  aims = 6,
  swarm = 7,
  continued = 8,
  reads = 9,
  life_failures = 10,
  life_costs = 11,
  readers = 12,
  staging = 13
};
inline uint64_t stream_seed(uint64_t seed, Stream stream) {
  return mix64(seed + static_cast<uint64_t>(stream));
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() { return mix64(state_ += 0x9e3779b97f4a7c15); }
  // Uniform in [0, bound); 0 for 0.
  uint64_t below(uint64_t bound) { return static_cast<uint64_t>(Wide{next()} * bound >> 64); }
  // `value` times a lognormal factor of median 1: exp(sigma * z), sigma in thousandths. z is the sum of
  // twelve uniform draws less six, so that it stays within six standard deviations.
  int64_t lognormal(int64_t value, uint32_t sigma_permille);
  // Exponentially distributed with this mean: -ln(u) * mean.
  uint64_t exponential(uint64_t mean) { return exponential_at(next(), mean); }
  // Weibull distributed: (-ln u)^(1 / shape) * scale. The shape is in thousandths, at least 100; 1000 gives
  // the exponential distribution.
  uint64_t weibull(uint64_t scale, uint32_t shape_permille) {
    return weibull_at(next(), scale, shape_permille);
  }

 private:
  uint64_t state_;
};

// 2^(exponent / 65536) in 1/65536. Precondition: |exponent| <= 16 * 65536.
uint64_t exp2_fixed16(int64_t exponent);

}  // namespace shoal::sim
