#include "sim/random.h"

#include <algorithm>

namespace shoal {

namespace {

constexpr uint64_t kOne = 1 << 16;
constexpr int64_t kMostExponent = 16 << 16;
constexpr int64_t kLog2OfE = 1'442'695;  // millionths

// 2^(2^-i) for i = 1 to 16, in 1/2^32.
constexpr uint64_t kRoots[] = {6074001000, 5107605667, 4683695048, 4485121744, 4389014833, 4341736423,
                               4318288544, 4306612134, 4300785774, 4297875550, 4296421177, 4295694175,
                               4295330720, 4295149004, 4295058149, 4295012722};

}  // namespace

uint64_t exp2_fixed16(int64_t exponent) {
  const int64_t whole = exponent >= 0 ? exponent >> 16 : -((-exponent + 0xffff) >> 16);
  const auto fraction = static_cast<uint64_t>(exponent - whole * 65536);
  uint64_t value = uint64_t{1} << 32;
  for (int i = 0; i < 16; ++i) {
    if ((fraction >> (15 - i) & 1) != 0) value = static_cast<uint64_t>(Wide{value} * kRoots[i] >> 32);
  }
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

}  // namespace shoal
