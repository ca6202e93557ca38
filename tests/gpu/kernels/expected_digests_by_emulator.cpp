#include "gpu/kernels/emulate.h"
#include "tests/gpu/kernels/expected_digests.h"

namespace shoal::gpu {

std::vector<uint64_t> expected_digests(ByteView piece) {
  std::vector<DigestPiece> pieces;
  append_digest_piece({piece.data(), nullptr, piece.size()}, &pieces);
  const DigestTable table = table_of(pieces);
  std::vector<uint64_t> leaf_hashes(table.leaves);
  std::vector<uint64_t> digests(table.blocks);
  emulate_digests(table, leaf_hashes.data(), digests.data(), 1);
  return digests;
}

}  // namespace shoal::gpu
