#include "gpu/kernels/emulate.h"

#include "gpu/kernels/conversion_body.h"
#include "gpu/kernels/digest_body.h"
#include "gpu/kernels/emulator.h"
#include "gpu/kernels/row_copy_body.h"

namespace shoal::gpu {

void emulate_row_copies(RowCopyTable table, uint64_t seed) {
  run_emulated(table.units, seed, [&](const EmulatedWarp& warp) { copy_rows(warp, table); });
}

void emulate_digests(DigestTable table, uint64_t* leaf_hashes, uint64_t* digests, uint64_t seed) {
  run_emulated(table.leaves, seed, [&](const EmulatedWarp& warp) { hash_leaves(warp, table, leaf_hashes); });
  const uint64_t warps = (table.blocks + kWarpLanes - 1) / kWarpLanes;
  run_emulated(warps, seed,
               [&](const EmulatedWarp& warp) { combine_leaves(warp, table, leaf_hashes, digests); });
}

void emulate_conversions(ConversionTable table, uint64_t seed) {
  run_emulated(table.units, seed, [&](const EmulatedWarp& warp) { convert_pieces(warp, table); });
}

}  // namespace shoal::gpu
