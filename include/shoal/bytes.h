// Bytes: owned and borrowed byte sequences, little-endian loads and stores, hex, and human-readable units.
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
// Parses a count of bytes: "64MiB", "1 GiB", "4096", "2k". All suffixes are powers of 1024.
// Code::invalid_argument: the text is no such count.
Result<uint64_t> parse_bytes(std::string_view text);

// True for valid UTF-8 without control characters: such a name may be printed or used in a path.
bool is_clean_utf8(std::string_view text);
// The text as one line of such UTF-8, of at most bytes_max bytes, for causes that are sent or stored. Cuts
// between characters and replaces control characters by spaces. If the text is not valid UTF-8, replaces each
// byte beyond ASCII by '?'.
std::string clean_line(std::string_view text, size_t bytes_max);

}  // namespace shoal
