#include "shoal/bytes.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

namespace shoal {

std::string hex_encode(ByteView bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (std::byte b : bytes) {
    out.push_back(digits[static_cast<unsigned>(b) >> 4]);
    out.push_back(digits[static_cast<unsigned>(b) & 15]);
  }
  return out;
}

namespace {
int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}
}  // namespace

Result<std::string> hex_decode(std::string_view hex) {
  if (hex.size() % 2 != 0) return Status(Code::corrupt, "an odd number of hex digits");
  std::string out;
  out.reserve(hex.size() / 2);
  for (size_t i = 0; i < hex.size(); i += 2) {
    int high = hex_digit(hex[i]), low = hex_digit(hex[i + 1]);
    if (high < 0 || low < 0) return Status(Code::corrupt, "not a hex digit");
    out.push_back(static_cast<char>(high * 16 + low));
  }
  return out;
}

std::string human_bytes(uint64_t bytes) {
  static constexpr std::array<const char*, 7> units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) value /= 1024, ++unit;
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : (value < 100 ? 1 : 0), units[unit]);
}

std::string human_seconds(double seconds) {
  if (seconds < 1e-6) return fmt::format("{:.0f} ns", seconds * 1e9);
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 120) return fmt::format("{:.2f} s", seconds);
  return fmt::format("{:.0f} min {:02.0f} s", std::floor(seconds / 60), std::fmod(seconds, 60));
}

Result<uint64_t> parse_bytes(std::string_view text) {
  auto bad = [&] {
    return Status(Code::invalid_argument,
                  fmt::format("'{}' is not a number of bytes: write it as in 4096, 512MiB or 1 GiB", text));
  };
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return bad();
  std::string_view suffix(end, text.data() + text.size());
  while (!suffix.empty() && suffix.front() == ' ') suffix.remove_prefix(1);
  if (suffix.empty() || suffix == "B") return value;
  static constexpr std::string_view prefixes = "kmgtpe";
  size_t power = prefixes.find(static_cast<char>(suffix.front() | 0x20));
  std::string_view rest = suffix.substr(1);
  if (power == std::string_view::npos || !(rest.empty() || rest == "B" || rest == "iB")) return bad();
  if (rest.empty() && prefixes[power] == 'e') return bad();  // the beginning of a number such as 1e6
  unsigned shift = 10 * (static_cast<unsigned>(power) + 1);
  if (value != 0 && (std::bit_width(value) + shift) > 64) return bad();
  return value << shift;
}

namespace {

// Whether all bytes are printable ASCII, as in most names.
bool is_plain_ascii(uint64_t word) {
  constexpr uint64_t kOnes = 0x0101010101010101u, kHigh = 0x80 * kOnes;
  const uint64_t below_space = (word - 0x20 * kOnes) & ~word;
  return ((word | (word + kOnes) | below_space) & kHigh) == 0;  // adding one carries from 0x7f
}

}  // namespace

bool is_clean_utf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    if (i + sizeof(uint64_t) <= text.size()) {
      uint64_t word = 0;
      std::memcpy(&word, text.data() + i, sizeof word);
      if (is_plain_ascii(word)) {
        i += sizeof word;
        continue;
      }
    }
    unsigned char c = static_cast<unsigned char>(text[i]);
    if (c < 0x20 || c == 0x7f) return false;
    size_t more = c < 0x80 ? 0 : (c >> 5) == 6 ? 1 : (c >> 4) == 14 ? 2 : (c >> 3) == 30 ? 3 : 4;
    if (more == 4 || i + more >= text.size() + (more == 0 ? 1 : 0)) return false;
    uint32_t point = more == 0 ? c : c & (0x3fu >> more);
    for (size_t k = 1; k <= more; ++k) {
      unsigned char next = static_cast<unsigned char>(text[i + k]);
      if ((next >> 6) != 2) return false;
      point = (point << 6) | (next & 0x3f);
    }
    static constexpr uint32_t smallest[] = {0, 0x80, 0x800, 0x10000};
    if (point < smallest[more] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) return false;
    i += more + 1;
  }
  return true;
}

std::string clean_line(std::string_view text, size_t bytes_max) {
  std::string out(text.substr(0, bytes_max));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  if (is_clean_utf8(out)) return out;
  if (text.size() > bytes_max) {  // removes a character that the bound would split
    std::string shorter = out;
    for (int i = 0; i < 3 && !shorter.empty(); ++i) {
      shorter.pop_back();
      if (is_clean_utf8(shorter)) return shorter;
    }
  }
  for (char& c : out) {
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  }
  return out;
}

}  // namespace shoal
