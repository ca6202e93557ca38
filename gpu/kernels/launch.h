// Launches the kernels on a device. A build without nvcc (gpu/build_info.h) does not define these functions.
//
// Any thread may call them. The current device must be the one of `stream`, of the tables and of all
// addresses in them; host memory that the device can address is allowed too. The kernels run on `stream` in
// the order of the launches; nothing waits, and nothing is allocated. Tables, sources and targets must stay
// valid until the stream has passed the launch. The result is an error number of the CUDA Runtime: 0 is
// success. An empty table launches nothing.
#pragma once

#include <cstdint>

#include "gpu/kernels/tables.h"

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace shoal::gpu {

int launch_row_copies(RowCopyTable table, CUstream_st* stream);
int launch_row_copies(const RowCopyList& list, CUstream_st* stream);
// Writes table.blocks digests. `leaf_hashes` has room for table.leaves numbers; its contents are of no use
// afterwards.
int launch_digests(DigestTable table, uint64_t* leaf_hashes, uint64_t* digests, CUstream_st* stream);
int launch_digests(const DigestList& list, uint64_t* leaf_hashes, uint64_t* digests, CUstream_st* stream);
int launch_conversions(ConversionTable table, CUstream_st* stream);

}  // namespace shoal::gpu
