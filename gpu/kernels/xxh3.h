// XXH3-64 with seed 0, for kernel bodies. Algorithm: XXH3 (xxHash 0.8),
// https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/kernels/memory.h"
#include "gpu/kernels/warp.h"

namespace shoal::gpu::xxh3 {

inline constexpr uint64_t kPrime32_1 = 0x9E3779B1;
inline constexpr uint64_t kPrime64_1 = 0x9E3779B185EBCA87;
inline constexpr uint64_t kPrime64_2 = 0xC2B2AE3D27D4EB4F;
inline constexpr uint64_t kPrime64_3 = 0x165667B19E3779F9;

inline constexpr unsigned kStripeBytes = 64;
inline constexpr unsigned kStripesPerChunk = 16;
// Accumulators are scrambled after each chunk. The specification calls it a block.
inline constexpr unsigned kChunkBytes = kStripeBytes * kStripesPerChunk;
inline constexpr unsigned kShortBytesMax = 240;

// 8 bytes of the default secret from any offset up to 184, little-endian.
SHOAL_KERNEL uint64_t secret(unsigned offset) {
  static constexpr uint64_t kWords[24] = {
      0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072, 0x78e5c0cc4ee679cb,
      0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0, 0xcb00c391bb52283c, 0xa32e531b8b65d088,
      0x4ef90da297486471, 0xd8acdea946ef1938, 0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a,
      0x647378d9c97e9fc8, 0xc3ebd33483acc5ea, 0xeb6313faffa081c5, 0x49daf0b751dd0d17, 0x9e68d429265516d3,
      0xfca1477d58be162b, 0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af,
  };
  const unsigned word = offset / 8;
  const unsigned shift = offset % 8 * 8;
  return shift == 0 ? kWords[word] : kWords[word] >> shift | kWords[word + 1] << (64 - shift);
}

// The value with which accumulator `lane` of eight begins.
SHOAL_KERNEL uint64_t first_accumulator(unsigned lane) {
  static constexpr uint64_t kFirst[8] = {0xC2B2AE3D,         kPrime64_1, kPrime64_2,         kPrime64_3,
                                         0x85EBCA77C2B2AE63, 0x85EBCA77, 0x27D4EB2F165667C5, kPrime32_1};
  return kFirst[lane];
}

SHOAL_KERNEL uint64_t rotate_left(uint64_t value, unsigned bits) {
  return value << bits | value >> (64 - bits);
}

SHOAL_KERNEL uint64_t swap_bytes(uint64_t value) {
  value = (value & 0x00FF00FF00FF00FF) << 8 | (value >> 8 & 0x00FF00FF00FF00FF);
  value = (value & 0x0000FFFF0000FFFF) << 16 | (value >> 16 & 0x0000FFFF0000FFFF);
  return value << 32 | value >> 32;
}

// The low half of the product of 128 bits, combined with its high half by exclusive or.
SHOAL_KERNEL uint64_t fold_product(uint64_t a, uint64_t b) {
#if defined(__CUDA_ARCH__)
  return a * b ^ __umul64hi(a, b);
#else
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
#endif
}

SHOAL_KERNEL uint64_t avalanche(uint64_t hash) {
  hash = (hash ^ hash >> 37) * 0x165667919E3779F9;
  return hash ^ hash >> 32;
}

SHOAL_KERNEL uint64_t avalanche_of_xxh64(uint64_t hash) {
  hash = (hash ^ hash >> 33) * kPrime64_2;
  hash = (hash ^ hash >> 29) * kPrime64_3;
  return hash ^ hash >> 32;
}

SHOAL_KERNEL uint64_t scramble(uint64_t accumulator, uint64_t key) {
  return (accumulator ^ accumulator >> 47 ^ key) * kPrime32_1;
}

// What a word of a stripe adds to its own accumulator; the word itself is added to the neighbour.
SHOAL_KERNEL uint64_t keyed_product(uint64_t word, uint64_t key) {
  const uint64_t keyed = word ^ key;
  return (keyed & 0xFFFFFFFF) * (keyed >> 32);
}

SHOAL_KERNEL uint64_t read32(const std::byte* p) {
  uint64_t value = 0;
  for (unsigned i = 0; i < 4; ++i) value |= uint64_t{load<1>(p + i)} << (8 * i);
  return value;
}

SHOAL_KERNEL uint64_t mix16(const std::byte* p, unsigned key) {
  return fold_product(load8<1>(p) ^ secret(key), load8<1>(p + 8) ^ secret(key + 8));
}

SHOAL_KERNEL uint64_t hash_up_to_16(const std::byte* p, unsigned bytes) {
  if (bytes > 8) {
    const uint64_t low = load8<1>(p) ^ secret(24) ^ secret(32);
    const uint64_t high = load8<1>(p + bytes - 8) ^ secret(40) ^ secret(48);
    return avalanche(bytes + swap_bytes(low) + high + fold_product(low, high));
  }
  if (bytes >= 4) {
    uint64_t hash = (read32(p + bytes - 4) | read32(p) << 32) ^ secret(8) ^ secret(16);
    hash ^= rotate_left(hash, 49) ^ rotate_left(hash, 24);
    hash *= 0x9FB21C651E98DF25;
    hash = (hash ^ ((hash >> 35) + bytes)) * 0x9FB21C651E98DF25;
    return hash ^ hash >> 28;
  }
  if (bytes == 0) return avalanche_of_xxh64(secret(56) ^ secret(64));
  const uint64_t combined = uint64_t{load<1>(p)} << 16 | uint64_t{load<1>(p + bytes / 2)} << 24 |
                            uint64_t{load<1>(p + bytes - 1)} | bytes << 8;
  return avalanche_of_xxh64(combined ^ (secret(0) & 0xFFFFFFFF) ^ (secret(4) & 0xFFFFFFFF));
}

// At most kShortBytesMax bytes from any address, by one lane.
SHOAL_KERNEL_CALLED uint64_t hash_short(const std::byte* p, unsigned bytes) {
  if (bytes <= 16) return hash_up_to_16(p, bytes);
  uint64_t hash = bytes * kPrime64_1;
  if (bytes <= 128) {
    for (unsigned i = 0; i < (bytes - 1) / 32 + 1; ++i) {
      hash += mix16(p + 16 * i, 32 * i) + mix16(p + bytes - 16 * (i + 1), 32 * i + 16);
    }
    return avalanche(hash);
  }
  for (unsigned i = 0; i < 8; ++i) hash += mix16(p + 16 * i, 16 * i);
  hash = avalanche(hash);
  for (unsigned i = 8; i < bytes / 16; ++i) hash += mix16(p + 16 * i, 16 * (i - 8) + 3);
  return avalanche(hash + mix16(p + bytes - 16, 136 - 17));
}

}  // namespace shoal::gpu::xxh3
