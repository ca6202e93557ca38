#include "base/digest/digest.h"
#include "tests/gpu/kernels/expected_digests.h"

namespace shoal::gpu {

std::vector<uint64_t> expected_digests(ByteView piece) {
  std::vector<uint64_t> digests;
  base::digest_blocks(piece, &digests);
  return digests;
}

}  // namespace shoal::gpu
