// The body of the kernel that converts elements: one warp converts one unit of a table of ConversionPiece.
#pragma once

#include "gpu/kernels/element_conversion.h"
#include "gpu/kernels/tables.h"
#include "gpu/kernels/warp.h"

namespace shoal::gpu {

// Converts unit number warp.index() of the table; beyond the last unit it does nothing.
template <class Warp>
SHOAL_KERNEL void convert_pieces(const Warp& warp, ConversionTable table) {
  if (warp.index() >= table.units) return;
  const ConversionPiece& piece =
      entry_of(table.pieces, table.count, &ConversionPiece::first_unit, warp.index());
  const uint64_t begin = (warp.index() - piece.first_unit) * kConversionUnitElements;
  uint64_t end = piece.elements;
  if (end - begin > kConversionUnitElements) end = begin + kConversionUnitElements;
  const std::byte* source = piece.source;
  std::byte* target = piece.target;
  const DType from = piece.from;
  const DType to = piece.to;
  const unsigned source_bytes = element_bytes(from);
  const unsigned target_bytes = element_bytes(to);
  for (uint64_t first = begin; first < end; first += kWarpLanes) {
    warp.each_lane([&](unsigned lane) {
      const uint64_t element = first + lane;
      if (element >= end) return;
      convert_element(from, source + element * source_bytes, to, target + element * target_bytes);
    });
  }
}

}  // namespace shoal::gpu
