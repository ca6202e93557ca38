// Chunk: a part of a checkpoint that nodes send to each other during a shared load.
// docs/reference/protocol.md, "A shared load".
#pragma once

#include <cstdint>
#include <memory>

#include "base/digest/digest.h"
#include "shoal/bytes.h"
#include "shoal/read_damage.h"

namespace shoal::actors {

inline constexpr uint64_t kChunkBytes = 4 * base::kDigestBlockBytes;  // bound of one chunk
inline constexpr size_t kMaxChunkRanges = 2048;                       // runs of digest blocks in one chunk
// Bound of a shard header that a node sends to others: enough for about 3,000 tensors, or 60 GB of tensors.
inline constexpr uint64_t kMaxPassedHeaderBytes = uint64_t{1} << 20;
static_assert(kMaxPassedHeaderBytes <= kChunkBytes);

// The bytes of runs of whole digest blocks, one run after the other, as the shards hold them; or the header
// of a shard, whose digests prove the other chunks of that shard.
struct Chunk {
  uint64_t size = 0;   // in bytes
  Bytes bytes;         // `size` of them; empty where the simulator only counts bytes
  DamageList damaged;  // what this node read from copies; not sent to other nodes
};
using ChunkPtr = std::shared_ptr<const Chunk>;

}  // namespace shoal::actors
