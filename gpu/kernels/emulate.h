// What launch.h launches on a device, run on the host with the same source: the same results, in the memory
// that the tables name. For tests, and for a stand-in of a device. Some hundred MB/s on the caller's thread.
#pragma once

#include <cstdint>

#include "gpu/kernels/tables.h"

namespace shoal::gpu {

// The seed draws the order of blocks, warps and lanes. No result depends on it.
void emulate_row_copies(RowCopyTable table, uint64_t seed);
void emulate_digests(DigestTable table, uint64_t* leaf_hashes, uint64_t* digests, uint64_t seed);
void emulate_conversions(ConversionTable table, uint64_t seed);

}  // namespace shoal::gpu
