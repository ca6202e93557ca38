// Tables of pieces: what a launch of a kernel works on. One launch handles many pieces, whatever their sizes:
// the work is cut into units of at most some KiB, and each warp takes one unit, which it finds in the table
// by binary search.
//
// A table is built on the host with append_*, and then lies in memory that the kernel can read: the arrays
// are plain bytes, to be copied to the device as they are. The *Table structs are arguments of a launch;
// their pointers are the device's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shoal/dtype.h"

namespace shoal::gpu {

// `rows` rows of `row_bytes` bytes. In each memory a row begins one stride after the row before it. Packing
// has target_stride == row_bytes, unpacking source_stride == row_bytes. Any addresses and strides are
// allowed. Source and target must not overlap, nor may the targets of two pieces of a table.
struct RowCopy {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  uint64_t row_bytes = 0;
  uint64_t rows = 1;
  uint64_t source_stride = 0;  // unused with one row
  uint64_t target_stride = 0;  // unused with one row
  uint64_t first_unit = 0;     // units of the pieces before; append_row_copy sets it
};
inline constexpr uint64_t kRowCopyUnitBytes = uint64_t{16} << 10;

struct RowCopyTable {
  const RowCopy* pieces = nullptr;
  uint32_t count = 0;
  uint64_t units = 0;  // warps that the launch needs
};

// A table that travels as the argument of its launch: it needs no memory of a device, and may be forgotten
// once the launch has returned.
struct RowCopyList {
  static constexpr uint32_t kMost = 64;  // a launch has room for 4 KiB
  RowCopy pieces[kMost];
  uint32_t count = 0;
  uint64_t units = 0;
};
// The list must have room.
void append_row_copy(const RowCopy& piece, RowCopyList* list);

// Appends a piece. Rows that lie one after another in both memories become one row, and a piece of 0 bytes is
// left out. row_bytes * rows must be less than 2^63.
void append_row_copy(RowCopy piece, std::vector<RowCopy>* pieces);
RowCopyTable table_of(const std::vector<RowCopy>& pieces);

// Contiguous bytes whose digest blocks are digested (base/digest/digest.h). With a target the kernel also
// copies the bytes there while it has them. Any addresses are allowed; both at a multiple of 16 is fastest.
struct DigestPiece {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;  // or null
  uint64_t bytes = 0;
  uint64_t first_leaf = 0;   // leaves of the pieces before; append_digest_piece sets it
  uint64_t first_block = 0;  // likewise
};

// The kernel needs room for the hashes of the leaves: `leaves` numbers of 64 bits, i.e. 1/8192 of the bytes.
// It writes `blocks` digests, in the order of pieces and, within a piece, of blocks.
struct DigestTable {
  const DigestPiece* pieces = nullptr;
  uint32_t count = 0;
  uint64_t leaves = 0;  // warps that the first launch needs
  uint64_t blocks = 0;  // lanes that the second launch needs
};

// As RowCopyList.
struct DigestList {
  static constexpr uint32_t kMost = 64;
  DigestPiece pieces[kMost];
  uint32_t count = 0;
  uint64_t leaves = 0;
  uint64_t blocks = 0;
};
void append_digest_piece(const DigestPiece& piece, DigestList* list);  // the list must have room

void append_digest_piece(DigestPiece piece, std::vector<DigestPiece>* pieces);  // leaves out one of 0 bytes
DigestTable table_of(const std::vector<DigestPiece>& pieces);

// Elements that are converted to another dtype (gpu/dtype_conversion.h). Any addresses are allowed. Source
// and target must not overlap.
struct ConversionPiece {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  uint64_t elements = 0;
  DType from = DType::f32;
  DType to = DType::f32;
  uint64_t first_unit = 0;  // units of the pieces before; append_conversion sets it
};
inline constexpr uint64_t kConversionUnitElements = 4096;

struct ConversionTable {
  const ConversionPiece* pieces = nullptr;
  uint32_t count = 0;
  uint64_t units = 0;  // warps that the launch needs
};

// Both dtypes must be such that converts_between() is true. A piece without elements is left out.
void append_conversion(ConversionPiece piece, std::vector<ConversionPiece>* pieces);
ConversionTable table_of(const std::vector<ConversionPiece>& pieces);

}  // namespace shoal::gpu
