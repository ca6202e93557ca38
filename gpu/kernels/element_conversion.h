// The conversion of one element, for kernel bodies and for the host. gpu/dtype_conversion.h has the rules.
// Integer arithmetic only: it does not depend on how a compiler or a device rounds.
#pragma once

#include <cstdint>

#include "gpu/kernels/memory.h"
#include "gpu/kernels/warp.h"
#include "shoal/dtype.h"

namespace shoal::gpu {

// What a value of a small format is made of, below its sign.
struct FloatFormat {
  unsigned mantissa_bits;
  unsigned bias;
  uint32_t largest;  // what is too large becomes this
};
inline constexpr FloatFormat kF16{10, 15, 0x7C00};
inline constexpr FloatFormat kE5m2{2, 15, 0x7C};
inline constexpr FloatFormat kE4m3{3, 7, 0x7E};

inline constexpr uint32_t kF32Infinity = 0x7F800000;
inline constexpr uint32_t kF32Quiet = 0x00400000;

// A finite value without sign, as f32.
SHOAL_KERNEL uint32_t widen(uint32_t value, FloatFormat format) {
  uint32_t exponent = value >> format.mantissa_bits;
  uint32_t mantissa = value - (exponent << format.mantissa_bits);
  if (exponent == 0) {
    if (mantissa == 0) return 0;
    uint32_t shift = 0;
    while (mantissa >> format.mantissa_bits == 0) {
      mantissa <<= 1;
      ++shift;
    }
    mantissa -= 1u << format.mantissa_bits;
    return (127 - format.bias + 1 - shift) << 23 | mantissa << (23 - format.mantissa_bits);
  }
  return (exponent + 127 - format.bias) << 23 | mantissa << (23 - format.mantissa_bits);
}

// value / 2^shift, to the nearest, ties to even. shift is 1 to 24 and value less than 2^31.
SHOAL_KERNEL uint32_t shift_rounded(uint32_t value, unsigned shift) {
  return (value + (1u << (shift - 1)) - 1 + (value >> shift & 1)) >> shift;
}

// An f32 without sign that is not NaN, in another format.
SHOAL_KERNEL uint32_t narrow(uint32_t value, FloatFormat format) {
  const uint32_t smallest_exponent = 127 - format.bias + 1;  // f32's, of the smallest normal value
  const uint32_t exponent = value >> 23;
  const unsigned shift = 23 - format.mantissa_bits;
  if (exponent >= smallest_exponent) {
    const uint32_t rounded = shift_rounded(value - ((127 - format.bias) << 23), shift);
    return rounded < format.largest ? rounded : format.largest;
  }
  const unsigned further = shift + smallest_exponent - exponent;
  if (exponent == 0 || further > 24) return 0;
  return shift_rounded((value & 0x007FFFFF) | 0x00800000, further);
}

// The bits of an element as those of the f32 that has the same value.
SHOAL_KERNEL uint32_t to_f32(DType from, uint32_t bits) {
  switch (from) {
    case DType::f32:
      return bits;
    case DType::bf16:
      return bits << 16;
    case DType::f8_e4m3: {
      const uint32_t sign = (bits & 0x80) << 24;
      return (bits & 0x7F) == 0x7F ? sign | 0x7FF00000 : sign | widen(bits & 0x7F, kE4m3);
    }
    case DType::f8_e5m2:
      bits <<= 8;
      [[fallthrough]];  // the upper half of an f16
    default: {
      const uint32_t sign = (bits & 0x8000) << 16;
      const uint32_t mantissa = bits & 0x03FF;
      if ((bits & 0x7C00) != 0x7C00) return sign | widen(bits & 0x7FFF, kF16);
      return sign | kF32Infinity | mantissa << 13 | (mantissa == 0 ? 0 : kF32Quiet);
    }
  }
}

// The reverse, rounded. `is_f32`: the value was an f32 before, which determines the bits of a bf16's NaN.
SHOAL_KERNEL uint32_t from_f32(DType to, uint32_t bits, bool is_f32) {
  const uint32_t value = bits & 0x7FFFFFFF;
  const bool is_nan = value > kF32Infinity;
  switch (to) {
    case DType::f32:
      return bits;
    case DType::bf16:
      if (is_nan) return is_f32 ? 0xFFFF : 0x7FC0;
      return (bits >> 31) << 15 | shift_rounded(value, 16);
    case DType::f8_e4m3:
      return (bits >> 31) << 7 | (is_nan ? 0x7F : narrow(value, kE4m3));
    case DType::f8_e5m2:
      return (bits >> 31) << 7 | (is_nan ? 0x7F : narrow(value, kE5m2));
    default:
      return (bits >> 31) << 15 | (is_nan ? 0x7E00 | (value >> 13 & 0x03FF) : narrow(value, kF16));
  }
}

// Bytes of an element of a dtype that converts.
SHOAL_KERNEL unsigned element_bytes(DType dtype) {
  if (dtype == DType::f32) return 4;
  return dtype == DType::f16 || dtype == DType::bf16 ? 2 : 1;
}

template <unsigned bytes>
SHOAL_KERNEL uint32_t load_element(const std::byte* p) {
  if (address_of(p) % bytes == 0) return load<bytes>(p);
  uint32_t bits = 0;
  for (unsigned i = 0; i < bytes; ++i) bits |= uint32_t{load<1>(p + i)} << (8 * i);
  return bits;
}

template <unsigned bytes>
SHOAL_KERNEL void store_element(std::byte* p, uint32_t bits) {
  if (address_of(p) % bytes == 0) {
    store<bytes>(p, static_cast<Word<bytes>>(bits));
    return;
  }
  for (unsigned i = 0; i < bytes; ++i) store<1>(p + i, static_cast<uint8_t>(bits >> (8 * i)));
}

SHOAL_KERNEL void convert_element(DType from, const std::byte* source, DType to, std::byte* target) {
  const unsigned source_bytes = element_bytes(from);
  const unsigned target_bytes = element_bytes(to);
  uint32_t bits = source_bytes == 4   ? load_element<4>(source)
                  : source_bytes == 2 ? load_element<2>(source)
                                      : load_element<1>(source);
  if (from != to) bits = from_f32(to, to_f32(from, bits), from == DType::f32);
  if (target_bytes == 4) {
    store_element<4>(target, bits);
  } else if (target_bytes == 2) {
    store_element<2>(target, bits);
  } else {
    store_element<1>(target, bits);
  }
}

}  // namespace shoal::gpu
