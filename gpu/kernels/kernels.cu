// The kernels: their bodies are in *_body.h, and run on the host too (emulate.h).
#include <cuda_runtime.h>

#include "gpu/kernels/conversion_body.h"
#include "gpu/kernels/digest_body.h"
#include "gpu/kernels/launch.h"
#include "gpu/kernels/row_copy_body.h"
#include "gpu/kernels/warp.h"

namespace shoal::gpu {

namespace {

constexpr unsigned kThreads = kWarpsPerBlock * kWarpLanes;

__global__ void __launch_bounds__(kThreads) row_copy_kernel(RowCopyTable table) {
  copy_rows(DeviceWarp(), table);
}

__global__ void __launch_bounds__(kThreads) row_copy_list_kernel(const __grid_constant__ RowCopyList list) {
  copy_rows(DeviceWarp(), RowCopyTable{list.pieces, list.count, list.units});
}

__global__ void __launch_bounds__(kThreads) leaf_kernel(DigestTable table, uint64_t* leaf_hashes) {
  hash_leaves(DeviceWarp(), table, leaf_hashes);
}

__global__ void __launch_bounds__(kThreads)
    block_kernel(DigestTable table, const uint64_t* leaf_hashes, uint64_t* digests) {
  combine_leaves(DeviceWarp(), table, leaf_hashes, digests);
}

__host__ __device__ DigestTable table_of(const DigestList& list) {
  return {list.pieces, list.count, list.leaves, list.blocks};
}

__global__ void __launch_bounds__(kThreads)
    leaf_list_kernel(const __grid_constant__ DigestList list, uint64_t* leaf_hashes) {
  hash_leaves(DeviceWarp(), table_of(list), leaf_hashes);
}

__global__ void __launch_bounds__(kThreads)
    block_list_kernel(const __grid_constant__ DigestList list, const uint64_t* leaf_hashes,
                      uint64_t* digests) {
  combine_leaves(DeviceWarp(), table_of(list), leaf_hashes, digests);
}

__global__ void __launch_bounds__(kThreads) conversion_kernel(ConversionTable table) {
  convert_pieces(DeviceWarp(), table);
}

// A grid has at most 2^31 - 1 blocks: 2^45 bytes of units of 16 KiB, more than a device's memory.
unsigned blocks_for(uint64_t warps) {
  return static_cast<unsigned>((warps + kWarpsPerBlock - 1) / kWarpsPerBlock);
}

}  // namespace

int launch_row_copies(RowCopyTable table, CUstream_st* stream) {
  if (table.units == 0) return cudaSuccess;
  row_copy_kernel<<<blocks_for(table.units), kThreads, 0, stream>>>(table);
  return cudaGetLastError();
}

int launch_row_copies(const RowCopyList& list, CUstream_st* stream) {
  if (list.units == 0) return cudaSuccess;
  row_copy_list_kernel<<<blocks_for(list.units), kThreads, 0, stream>>>(list);
  return cudaGetLastError();
}

int launch_digests(DigestTable table, uint64_t* leaf_hashes, uint64_t* digests, CUstream_st* stream) {
  if (table.leaves == 0) return cudaSuccess;
  leaf_kernel<<<blocks_for(table.leaves), kThreads, 0, stream>>>(table, leaf_hashes);
  const uint64_t warps = (table.blocks + kWarpLanes - 1) / kWarpLanes;
  block_kernel<<<blocks_for(warps), kThreads, 0, stream>>>(table, leaf_hashes, digests);
  return cudaGetLastError();
}

int launch_digests(const DigestList& list, uint64_t* leaf_hashes, uint64_t* digests, CUstream_st* stream) {
  if (list.leaves == 0) return cudaSuccess;
  leaf_list_kernel<<<blocks_for(list.leaves), kThreads, 0, stream>>>(list, leaf_hashes);
  const uint64_t warps = (list.blocks + kWarpLanes - 1) / kWarpLanes;
  block_list_kernel<<<blocks_for(warps), kThreads, 0, stream>>>(list, leaf_hashes, digests);
  return cudaGetLastError();
}

int launch_conversions(ConversionTable table, CUstream_st* stream) {
  if (table.units == 0) return cudaSuccess;
  conversion_kernel<<<blocks_for(table.units), kThreads, 0, stream>>>(table);
  return cudaGetLastError();
}

}  // namespace shoal::gpu
