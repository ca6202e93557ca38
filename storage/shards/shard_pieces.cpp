#include <algorithm>
#include <limits>
#include <numeric>

#include "base/digest/digest.h"
#include "storage/shards/shard_file.h"

namespace shoal::storage {

// The counts below fit, because a header has more bytes than names and numbers.
static_assert(kMaxShardHeaderBytes < std::numeric_limits<uint32_t>::max());
static_assert(kMaxShardKeyBytes < std::numeric_limits<uint16_t>::max());
static_assert(kMaxDims < std::numeric_limits<uint8_t>::max());

ShardPiece ShardPieces::operator[](size_t piece) const {
  const Entry& entry = entries_[piece];
  ShardPiece out;
  out.key = key(piece);
  out.fqn = entry.fqn_bytes == 0 ? out.key : text(size_t{entry.name_at} + entry.key_bytes, entry.fqn_bytes);
  out.dtype = entry.dtype;
  out.is_object = entry.is_object;
  out.bytes = bytes(piece);
  const uint64_t* number = numbers_.data() + entry.numbers_at;
  out.global_shape.assign(number, number + entry.dims);
  if (entry.is_whole) {
    out.box = whole(out.global_shape);
  } else {
    out.box.offsets.assign(number + entry.dims, number + 2 * entry.dims);
    out.box.sizes.assign(number + 2 * entry.dims, number + 3 * entry.dims);
  }
  return out;
}

std::string_view ShardPieces::key(size_t piece) const {
  const Entry& entry = entries_[piece];
  return text(entry.name_at, entry.key_bytes);
}

void ShardPieces::add(const ShardPiece& piece) {
  add(Flat{piece.key, piece.fqn, piece.dtype, piece.is_object, piece.global_shape, piece.box.offsets,
           piece.box.sizes, piece.bytes});
}

void ShardPieces::add(const Flat& piece) {
  Entry entry;
  entry.offset = data_bytes_;
  entry.name_at = static_cast<uint32_t>(names_.size());
  entry.numbers_at = static_cast<uint32_t>(numbers_.size());
  entry.first_digest = static_cast<uint32_t>(digests_);
  entry.key_bytes = static_cast<uint16_t>(piece.key.size());
  names_.insert(names_.end(), piece.key.begin(), piece.key.end());
  if (piece.fqn != piece.key) {
    entry.fqn_bytes = static_cast<uint16_t>(piece.fqn.size());
    names_.insert(names_.end(), piece.fqn.begin(), piece.fqn.end());
  }
  entry.dims = static_cast<uint8_t>(piece.global_shape.size());
  entry.dtype = piece.dtype;
  entry.is_object = piece.is_object;
  entry.is_whole = std::ranges::equal(piece.global_shape, piece.box_sizes) &&
                   std::ranges::all_of(piece.box_offsets, [](uint64_t offset) { return offset == 0; });
  numbers_.insert(numbers_.end(), piece.global_shape.begin(), piece.global_shape.end());
  if (!entry.is_whole) {
    numbers_.insert(numbers_.end(), piece.box_offsets.begin(), piece.box_offsets.end());
    numbers_.insert(numbers_.end(), piece.box_sizes.begin(), piece.box_sizes.end());
  }
  entries_.push_back(entry);
  data_bytes_ += piece.bytes;
  digests_ += base::digest_count(piece.bytes);
}

std::optional<std::string> ShardPieces::sort() {
  by_key_.clear();
  bool ascends = true;
  for (size_t i = 1; i < size() && ascends; ++i) ascends = key(i - 1) < key(i);
  if (ascends) return std::nullopt;
  by_key_.resize(size());
  std::iota(by_key_.begin(), by_key_.end(), 0u);
  std::sort(by_key_.begin(), by_key_.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  for (size_t i = 1; i < size(); ++i) {
    if (key(by_key_[i - 1]) == key(by_key_[i])) return std::string(key(by_key_[i]));
  }
  return std::nullopt;
}

std::optional<size_t> ShardPieces::find(std::string_view wanted) const {
  size_t low = 0, high = size();
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const size_t piece = by_key_.empty() ? middle : by_key_[middle];
    const int order = key(piece).compare(wanted);
    if (order == 0) return piece;
    if (order < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return std::nullopt;
}

void ShardPieces::shrink() {
  entries_.shrink_to_fit();
  names_.shrink_to_fit();
  numbers_.shrink_to_fit();
}

uint64_t ShardPieces::memory_bytes() const {
  return entries_.capacity() * sizeof(Entry) + names_.capacity() + numbers_.capacity() * sizeof(uint64_t) +
         by_key_.capacity() * sizeof(uint32_t);
}

}  // namespace shoal::storage
