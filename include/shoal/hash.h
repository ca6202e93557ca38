// Hash128 and the XXH3 functions that every id and digest of Shoal is made of.
// Algorithm: XXH3 (xxHash 0.8), seed 0, https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "shoal/status.h"

namespace shoal {

// 128 bits in XXH's canonical (big-endian) byte order, so that they compare and print the same on every
// machine.
struct Hash128 {
  std::array<std::byte, 16> bytes{};

  friend auto operator<=>(const Hash128&, const Hash128&) = default;
  bool is_zero() const { return *this == Hash128{}; }
  std::string to_hex() const;     // 32 lower-case digits
  std::string short_hex() const;  // the first 8 digits, for messages
  static Result<Hash128> from_hex(std::string_view hex);
  // Wrong length (not 16) is Code::corrupt.
  static Result<Hash128> from_bytes(std::span<const std::byte> bytes);
  uint64_t low64() const;  // for hash tables and rotations; the same on every machine
};

Hash128 xxh3_128(std::span<const std::byte> data);
uint64_t xxh3_64(std::span<const std::byte> data);
uint64_t xxh3_64(std::string_view text);

// 16 bytes from the kernel's random source (getrandom). Roles must not use it: they are deterministic.
Hash128 random_128();

using LayoutId = Hash128;
using RosterId = Hash128;
using PlanId = Hash128;
using RootId = Hash128;
using Nonce = Hash128;

}  // namespace shoal

template <>
struct std::hash<shoal::Hash128> {
  std::size_t operator()(const shoal::Hash128& h) const noexcept { return h.low64(); }
};
