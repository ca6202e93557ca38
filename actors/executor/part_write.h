// Writes a shard file of a save in parts, whose bytes pass through a slab that holds only some of them.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "actors/executor/operation_runner.h"
#include "actors/operation.h"

namespace shoal::actors {

// Divides the bytes of a file into parts that are requested one at a time, in file order.
class PartCursor {
 public:
  // `part_bytes`: space in the slab that a part may take; whole digest blocks, at least one.
  PartCursor(const std::vector<SlabRange>& data, uint64_t part_bytes)
      : data_(data), part_bytes_(part_bytes) {}
  // The ranges of the next part, placed from `slab_offset` on: whole digest blocks of a piece, or the rest of
  // it. Empty: there is no further part.
  std::vector<local::PartRange> next(uint64_t slab_offset);

 private:
  const std::vector<SlabRange>& data_;
  const uint64_t part_bytes_;
  size_t piece_ = 0;
  uint64_t done_ = 0;  // bytes of that piece
};

// Alignment of the ranges of a part in the slab: a cache line.
inline constexpr uint64_t kPartAlignmentBytes = 64;

// Writes one half of the slab while the client fills the other. Returns the errors of write_shard and of the
// source. If bytes_done is not null, adds the written bytes to it.
Result<storage::WrittenShard> write_shard_in_parts(storage::Storage& storage, const std::string& path,
                                                   const Nonce& nonce, const operation::WriteShard& write,
                                                   ByteView slab, PartSource& source,
                                                   std::atomic<uint64_t>* bytes_done = nullptr);

}  // namespace shoal::actors
