// Chunk: a part of a checkpoint that nodes pass on to each other while they load it.
// docs/reference/protocol.md, "A shared load".
#pragma once

#include <cstdint>
#include <memory>

#include "base/digest/digest.h"
#include "shoal/bytes.h"
#include "shoal/read_damage.h"

namespace shoal::actors {

inline constexpr uint64_t kChunkBytes = 4 * base::kDigestBlockBytes;  // at most
inline constexpr size_t kMaxChunkRanges = 2048;                       // runs of digest blocks in one
// Of a shard's header that is passed on: 3,000 tensors, or 60 GB of them, about.
inline constexpr uint64_t kMaxPassedHeaderBytes = uint64_t{1} << 20;
static_assert(kMaxPassedHeaderBytes <= kChunkBytes);

// The bytes of runs of whole digest blocks, one run after the other, as they stand in the shards; or the
// header of a shard, by whose digests its others are checked.
struct Chunk {
  uint64_t size = 0;   // bytes
  Bytes bytes;         // `size` of them; none where only their number counts (sim/)
  DamageList damaged;  // where this node read it from copies; not told to others
};
using ChunkPtr = std::shared_ptr<const Chunk>;

}  // namespace shoal::actors
