// CanonicalBytes: little-endian byte strings to be hashed, in the form that docs/explanation/planning.md
// defines.
#pragma once

#include "shoal/bytes.h"
#include "shoal/hash.h"

namespace shoal::plan {

class CanonicalBytes {
 public:
  void u8(uint8_t value) { bytes_.push_back(static_cast<std::byte>(value)); }
  void u32(uint32_t value) {
    size_t at = grow(4);
    store_le32(bytes_.data() + at, value);
  }
  void u64(uint64_t value) {
    size_t at = grow(8);
    store_le64(bytes_.data() + at, value);
  }
  void hash(const Hash128& value) { bytes_.insert(bytes_.end(), value.bytes.begin(), value.bytes.end()); }
  void reserve(size_t bytes) { bytes_.reserve(bytes); }

  Hash128 hash_128() const { return xxh3_128(bytes_); }
  uint64_t hash_64() const { return xxh3_64(std::span<const std::byte>(bytes_)); }

 private:
  size_t grow(size_t by) {
    bytes_.resize(bytes_.size() + by);
    return bytes_.size() - by;
  }
  Bytes bytes_;
};

}  // namespace shoal::plan
