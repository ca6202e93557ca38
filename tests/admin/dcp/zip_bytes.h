// Archives as torch.save writes them, with CRC-32s.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shoal::admin {

inline void append_le(std::string* out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i, value >>= 8) out->push_back(static_cast<char>(value));
}

inline uint32_t crc32_of(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

struct ZipOptions {
  bool has_large_fields = false;  // the 64-bit directory, and 64-bit sizes of the records
  int method = 0;
  std::string comment;
};

inline std::string zip_of(const std::vector<std::pair<std::string, std::string>>& records,
                          const ZipOptions& options = {}) {
  std::string out, directory;
  for (const auto& [name, content] : records) {
    const uint64_t at = out.size(), size = content.size();
    append_le(&out, 0x04034b50, 4);
    append_le(&out, 0, 10);
    append_le(&out, crc32_of(content), 4);
    append_le(&out, size, 4);
    append_le(&out, size, 4);
    append_le(&out, name.size(), 2);
    append_le(&out, 5, 2);  // filling, by which torch aligns records
    out += name + std::string(5, 'Z') + content;
    append_le(&directory, 0x02014b50, 4);
    append_le(&directory, 0, 6);
    append_le(&directory, static_cast<uint64_t>(options.method), 2);
    append_le(&directory, 0, 4);
    append_le(&directory, crc32_of(content), 4);
    append_le(&directory, options.has_large_fields ? 0xffffffff : size, 4);
    append_le(&directory, options.has_large_fields ? 0xffffffff : size, 4);
    append_le(&directory, name.size(), 2);
    append_le(&directory, options.has_large_fields ? 28 : 0, 2);
    append_le(&directory, 0, 10);
    append_le(&directory, options.has_large_fields ? 0xffffffff : at, 4);
    directory += name;
    if (!options.has_large_fields) continue;
    append_le(&directory, 1, 2);
    append_le(&directory, 24, 2);
    append_le(&directory, size, 8);
    append_le(&directory, size, 8);
    append_le(&directory, at, 8);
  }
  const uint64_t directory_at = out.size();
  out += directory;
  if (options.has_large_fields) {
    const uint64_t large_at = out.size();
    append_le(&out, 0x06064b50, 4);
    append_le(&out, 44, 8);
    append_le(&out, 0, 12);
    append_le(&out, records.size(), 8);
    append_le(&out, records.size(), 8);
    append_le(&out, directory.size(), 8);
    append_le(&out, directory_at, 8);
    append_le(&out, 0x07064b50, 4);
    append_le(&out, 0, 4);
    append_le(&out, large_at, 8);
    append_le(&out, 1, 4);
  }
  append_le(&out, 0x06054b50, 4);
  append_le(&out, 0, 4);
  append_le(&out, options.has_large_fields ? 0xffff : records.size(), 2);
  append_le(&out, options.has_large_fields ? 0xffff : records.size(), 2);
  append_le(&out, options.has_large_fields ? 0xffffffff : directory.size(), 4);
  append_le(&out, options.has_large_fields ? 0xffffffff : directory_at, 4);
  append_le(&out, options.comment.size(), 2);
  return out + options.comment;
}

}  // namespace shoal::admin
