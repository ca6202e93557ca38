// A shard file from a save that is staged in parts: its bytes come to a slab that holds only some of them.
#pragma once

#include <string>
#include <vector>

#include "actors/executor/operation_runner.h"
#include "actors/operation.h"

namespace shoal::actors {

// The parts of a file: what is asked for at a time, in file order.
class PartCursor {
 public:
  // `part_bytes`: of slab that each part takes at most, whole digest blocks, at least one.
  PartCursor(const std::vector<SlabRange>& data, uint64_t part_bytes)
      : data_(data), part_bytes_(part_bytes) {}
  // With places from `slab_offset` on; whole digest blocks of a piece, or the rest of it. Empty: no more.
  std::vector<local::PartRange> next(uint64_t slab_offset);

 private:
  const std::vector<SlabRange>& data_;
  const uint64_t part_bytes_;
  size_t piece_ = 0;
  uint64_t done_ = 0;  // bytes of it
};

// Where parts place the bytes of different pieces in a slab: a cache line.
inline constexpr uint64_t kPartAlignmentBytes = 64;

// While one half of the slab is written the client fills the other. Errors are those of write_shard, and of
// the source.
Result<storage::WrittenShard> write_shard_in_parts(storage::Storage& storage, const std::string& path,
                                                   const Nonce& nonce, const operation::WriteShard& write,
                                                   ByteView slab, PartSource& source);

}  // namespace shoal::actors
