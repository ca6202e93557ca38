// Bytes: owned and borrowed byte sequences, little-endian loads and stores, hex, and people's units.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/status.h"

namespace shoal {

using Bytes = std::vector<std::byte>;
using ByteView = std::span<const std::byte>;
using MutableByteView = std::span<std::byte>;

inline ByteView as_view(std::string_view text) {
  return std::as_bytes(std::span(text));
}
inline std::string_view as_text(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline uint64_t load_le64(const std::byte* p) {
  uint64_t v = 0;
  for (int i = 7; i >= 0; --i) v = (v << 8) | static_cast<uint64_t>(p[i]);
  return v;
}
inline uint32_t load_le32(const std::byte* p) {
  uint32_t v = 0;
  for (int i = 3; i >= 0; --i) v = (v << 8) | static_cast<uint32_t>(p[i]);
  return v;
}
inline void store_le64(std::byte* p, uint64_t v) {
  for (int i = 0; i < 8; ++i) p[i] = static_cast<std::byte>(v >> (8 * i));
}
inline void store_le32(std::byte* p, uint32_t v) {
  for (int i = 0; i < 4; ++i) p[i] = static_cast<std::byte>(v >> (8 * i));
}

std::string hex_encode(ByteView bytes);                // lower case
Result<std::string> hex_decode(std::string_view hex);  // Code::corrupt on anything but pairs of hex digits

std::string human_bytes(uint64_t bytes);    // "1.5 GiB"
std::string human_seconds(double seconds);  // "12.3 ms"
// "64MiB", "1 GiB", "4096", "2k": a count of bytes; suffixes are powers of 1024. Code::invalid_argument.
Result<uint64_t> parse_bytes(std::string_view text);

// True for bytes that may stand in a name shown to people or put in a path: no control characters,
//, valid UTF-8.
bool is_clean_utf8(std::string_view text);
// The text as one line of clean UTF-8 of at most bytes_max bytes, for causes that travel or are kept: cut
// between characters, control characters made spaces; what is no UTF-8 loses its bytes beyond ASCII to '?'.
std::string clean_line(std::string_view text, size_t bytes_max);

}  // namespace shoal
