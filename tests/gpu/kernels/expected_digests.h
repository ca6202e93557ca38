// What the kernels are compared with: the digests that the node would compute.
#pragma once

#include <cstdint>
#include <vector>

#include "shoal/bytes.h"

namespace shoal::gpu {

// Of each digest block of the piece. base::digest_blocks where it is linked. gpu/ alone, which does without
// xxHash, has the emulator instead: the whole tree's tests compare that one with base::digest_blocks.
std::vector<uint64_t> expected_digests(ByteView piece);

}  // namespace shoal::gpu
