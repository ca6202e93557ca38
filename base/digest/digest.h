// Digests of checkpoint bytes. A block of 1 MiB has one digest: the XXH3-64 of the little-endian XXH3-64s of
// its leaves of 64 KiB. Leaves are independent, so that a GPU can digest them in parallel.
// docs/reference/format.md, "Digests". Algorithm: XXH3 (xxHash 0.8), seed 0,
// https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
#pragma once

#include <cstdint>
#include <vector>

#include "shoal/bytes.h"

namespace shoal::base {

inline constexpr size_t kDigestBlockBytes = size_t{1} << 20;
inline constexpr size_t kDigestLeafBytes = size_t{64} << 10;
static_assert(kDigestBlockBytes % kDigestLeafBytes == 0);

// The number of blocks of a piece. The last block may be short; an empty piece has none.
constexpr uint64_t digest_count(uint64_t piece_bytes) {
  return piece_bytes / kDigestBlockBytes + (piece_bytes % kDigestBlockBytes != 0);
}

// `block` is at most kDigestBlockBytes. The result is the same on every machine; the function uses the widest
// vector instructions of this one. Any thread.
uint64_t block_digest(ByteView block);
void digest_blocks(ByteView piece, std::vector<uint64_t>* out);  // appends digest_count(piece.size()) digests

}  // namespace shoal::base
