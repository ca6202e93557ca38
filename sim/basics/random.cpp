#include "sim/basics/random.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace shoal::sim {

namespace {

constexpr uint64_t kOne = 1 << 16;
constexpr int64_t kMostExponent = 16 << 16;
constexpr int64_t kLog2OfE = 1'442'695;  // millionths

// 2^(2^-i) for i = 1 to 16, in 1/2^32.
constexpr uint64_t kRoots[] = {6074001000, 5107605667, 4683695048, 4485121744, 4389014833, 4341736423,
                               4318288544, 4306612134, 4300785774, 4297875550, 4296421177, 4295694175,
                               4295330720, 4295149004, 4295058149, 4295012722};

// Returns `value` times the root if `is_set`, without a branch, because such bits are unpredictable.
constexpr uint64_t times_root(uint64_t value, unsigned i, bool is_set) {
  return static_cast<uint64_t>(Wide{value} * (is_set ? kRoots[i] : uint64_t{1} << 32) >> 32);
}
// 2^(x / 2^8) for x below 2^8, in 1/2^32: the product of the first eight roots.
constexpr std::array<uint64_t, 256> kHighRoots = [] {
  std::array<uint64_t, 256> products{};
  for (unsigned x = 0; x < products.size(); ++x) {
    products[x] = uint64_t{1} << 32;
    for (unsigned i = 0; i < 8; ++i) products[x] = times_root(products[x], i, (x >> (7 - i) & 1) != 0);
  }
  return products;
}();

constexpr uint64_t kLn2 = 2'977'044'472;  // in 1/2^32
constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();

// log2(value) in 1/2^32, bit by bit: squares a number in [1, 2); if the square reaches 2, the bit is 1.
// Precondition: value > 0.
uint64_t log2_fixed32(uint64_t value) {
  const int zeros = std::countl_zero(value);
  uint64_t mantissa = value << zeros;  // in [1, 2), in 1/2^63
  uint64_t fraction = 0;
  for (int i = 0; i < 32; ++i) {
    const Wide squared = Wide{mantissa} * mantissa;
    const bool is_one = (squared >> 127 & 1) != 0;
    mantissa = static_cast<uint64_t>(squared >> (is_one ? 64 : 63));
    fraction = fraction << 1 | (is_one ? 1 : 0);
  }
  return static_cast<uint64_t>(63 - zeros) << 32 | fraction;
}

// -ln(u / 2^64) in 1/2^32.
uint64_t minus_ln_fixed32(uint64_t u) {
  const uint64_t halvings = (uint64_t{64} << 32) - log2_fixed32(std::max<uint64_t>(u, 1));
  return static_cast<uint64_t>(Wide{halvings} * kLn2 >> 32);
}

uint64_t bounded(Wide value) {
  return value > kMost ? kMost : static_cast<uint64_t>(value);
}

}  // namespace

uint64_t exponential_at(uint64_t u, uint64_t mean) {
  return bounded(Wide{minus_ln_fixed32(u)} * mean >> 32);
}

uint64_t weibull_at(uint64_t u, uint64_t scale, uint32_t shape_permille) {
  const uint64_t x = minus_ln_fixed32(u);
  if (x == 0) return 0;
  // x^(1 / shape) = 2^(log2(x) / shape)
  const auto log = static_cast<int64_t>(log2_fixed32(x)) - (int64_t{32} << 32);
  const int64_t exponent = (log >> 16) * 1000 / shape_permille;  // in 1/2^16
  const int64_t whole = exponent >> 16;
  const Wide value = Wide{scale} * exp2_fixed16(exponent - whole * 65536);
  if (whole < -100) return 0;
  if (whole > 40) return kMost;
  return bounded(whole >= 0 ? (value >> 16) << whole : value >> (16 - whole));
}

uint64_t exp2_fixed16(int64_t exponent) {
  const int64_t whole = exponent >= 0 ? exponent >> 16 : -((-exponent + 0xffff) >> 16);
  const auto fraction = static_cast<uint64_t>(exponent - whole * 65536);
  uint64_t value = kHighRoots[fraction >> 8];
  for (unsigned i = 8; i < 16; ++i) value = times_root(value, i, (fraction >> (15 - i) & 1) != 0);
  return whole >= 0 ? (value << whole) >> 16 : value >> (16 - whole);
}

int64_t Random::lognormal(int64_t value, uint32_t sigma_permille) {
  if (sigma_permille == 0) return value;
  int64_t z = -6 * static_cast<int64_t>(kOne);
  for (int i = 0; i < 3; ++i) {
    const uint64_t draw = next();
    for (int part = 0; part < 4; ++part) z += static_cast<int64_t>(draw >> (16 * part) & 0xffff);
  }
  const int64_t exponent = z * sigma_permille * kLog2OfE / 1'000'000'000;
  const uint64_t factor = exp2_fixed16(std::clamp(exponent, -kMostExponent, kMostExponent));
  return static_cast<int64_t>(Wide{static_cast<uint64_t>(value)} * factor >> 16);
}

}  // namespace shoal::sim
