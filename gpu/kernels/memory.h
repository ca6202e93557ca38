// Loads and stores of kernel bodies: the widest access that an address allows. A GPU faults on an access that
// is not aligned to its width; on the host such an access fails a SHOAL_CHECK.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gpu/kernels/warp.h"
#include "shoal/check.h"

namespace shoal::gpu {

struct alignas(16) Word16 {
  uint64_t low;
  uint64_t high;
};

template <unsigned width>
struct WordOf;
template <>
struct WordOf<16> {
  using Type = Word16;
};
template <>
struct WordOf<8> {
  using Type = uint64_t;
};
template <>
struct WordOf<4> {
  using Type = uint32_t;
};
template <>
struct WordOf<2> {
  using Type = uint16_t;
};
template <>
struct WordOf<1> {
  using Type = uint8_t;
};
// An unsigned integer of `width` bytes, or Word16.
template <unsigned width>
using Word = typename WordOf<width>::Type;

inline constexpr unsigned kWordBytesMax = 16;

SHOAL_KERNEL uint64_t address_of(const std::byte* p) {
  return reinterpret_cast<uintptr_t>(p);
}

// The widest access, in bytes, that is aligned at every multiple of `bits`: its lowest set bit, at most 16.
SHOAL_KERNEL unsigned access_width(uint64_t bits) {
  const unsigned low = static_cast<unsigned>(bits % kWordBytesMax) | kWordBytesMax;
  return low & (~low + 1);
}

template <unsigned width>
SHOAL_KERNEL Word<width> load(const std::byte* p) {
#if defined(__CUDA_ARCH__)
  return *reinterpret_cast<const Word<width>*>(p);
#else
  SHOAL_CHECK(address_of(p) % width == 0);
  Word<width> word;
  std::memcpy(&word, p, width);
  return word;
#endif
}

template <unsigned width>
SHOAL_KERNEL void store(std::byte* p, Word<width> word) {
#if defined(__CUDA_ARCH__)
  *reinterpret_cast<Word<width>*>(p) = word;
#else
  SHOAL_CHECK(address_of(p) % width == 0);
  std::memcpy(p, &word, width);
#endif
}

// 8 bytes, little-endian, by accesses of `width` bytes.
template <unsigned width>
SHOAL_KERNEL uint64_t load8(const std::byte* p) {
  if constexpr (width >= 8) {
    return load<8>(p);
  } else {
    uint64_t value = 0;
    for (unsigned i = 0; i < 8; i += width) value |= uint64_t{load<width>(p + i)} << (8 * i);
    return value;
  }
}

// 16 bytes by accesses of `width` bytes.
template <unsigned width>
SHOAL_KERNEL Word16 load16(const std::byte* p) {
  if constexpr (width == 16) {
    return load<16>(p);
  } else {
    return {load8<width>(p), load8<width>(p + 8)};
  }
}

template <unsigned width>
SHOAL_KERNEL void store16(std::byte* p, Word16 word) {
  if constexpr (width == 16) {
    store<16>(p, word);
  } else {
    for (unsigned i = 0; i < 8; i += width) {
      store<width>(p + i, static_cast<Word<width>>(word.low >> (8 * i)));
      store<width>(p + 8 + i, static_cast<Word<width>>(word.high >> (8 * i)));
    }
  }
}

// Of a table that ascends by `first`, the last entry whose number is at most `index`. The first entry's
// number is 0, and the table is not empty.
template <class Entry>
SHOAL_KERNEL const Entry& entry_of(const Entry* table, uint32_t count, uint64_t Entry::*first,
                                   uint64_t index) {
  uint32_t low = 0;
  uint32_t high = count;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if (table[middle].*first <= index) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return table[low];
}

}  // namespace shoal::gpu
