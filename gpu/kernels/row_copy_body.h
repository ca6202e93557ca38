// The body of the kernel that packs and unpacks boxes: one warp copies one unit of a table of RowCopy.
#pragma once

#include "gpu/kernels/memory.h"
#include "gpu/kernels/tables.h"
#include "gpu/kernels/warp.h"

namespace shoal::gpu {

// Shorter rows are copied element by element across rows, longer ones row by row.
inline constexpr uint64_t kLongRowBytes = 256;

// `words` words between addresses that are multiples of `width`.
template <unsigned width, class Warp>
SHOAL_KERNEL void copy_words(const Warp& warp, std::byte* target, const std::byte* source, uint64_t words) {
  constexpr unsigned kWordsAtOnce = 4;  // loads that a lane starts before its first store
  uint64_t done = 0;
  for (; done + kWordsAtOnce * kWarpLanes <= words; done += kWordsAtOnce * kWarpLanes) {
    warp.each_lane([&](unsigned lane) {
      Word<width> held[kWordsAtOnce];
      for (unsigned i = 0; i < kWordsAtOnce; ++i) {
        held[i] = load<width>(source + (done + i * kWarpLanes + lane) * width);
      }
      for (unsigned i = 0; i < kWordsAtOnce; ++i) {
        store<width>(target + (done + i * kWarpLanes + lane) * width, held[i]);
      }
    });
  }
  for (; done < words; done += kWarpLanes) {
    warp.each_lane([&](unsigned lane) {
      const uint64_t at = done + lane;
      if (at < words) store<width>(target + at * width, load<width>(source + at * width));
    });
  }
}

// At most kWordBytesMax bytes.
template <class Warp>
SHOAL_KERNEL void copy_few(const Warp& warp, std::byte* target, const std::byte* source, uint64_t bytes) {
  if (bytes == 0) return;
  warp.each_lane([&](unsigned lane) {
    if (lane < bytes) store<1>(target + lane, load<1>(source + lane));
  });
}

// Any number of bytes between any addresses. The accesses are as wide as the distance of the two addresses
// allows: 16 bytes where it is a multiple of 16.
template <class Warp>
SHOAL_KERNEL_CALLED void copy_span(const Warp& warp, std::byte* target, const std::byte* source,
                                   uint64_t bytes) {
  const unsigned width = access_width(address_of(source) - address_of(target));
  uint64_t head = (0 - address_of(target)) % width;
  if (head > bytes) head = bytes;
  copy_few(warp, target, source, head);
  target += head;
  source += head;
  bytes -= head;
  const uint64_t words = bytes / width;
  switch (width) {
    case 16:
      copy_words<16>(warp, target, source, words);
      break;
    case 8:
      copy_words<8>(warp, target, source, words);
      break;
    case 4:
      copy_words<4>(warp, target, source, words);
      break;
    case 2:
      copy_words<2>(warp, target, source, words);
      break;
    default:
      copy_words<1>(warp, target, source, words);
      break;
  }
  copy_few(warp, target + words * width, source + words * width, bytes % width);
}

// Bytes `begin` to `end` of the rows, counted without the gaps. Both and every row begin at a multiple of
// `width`.
template <unsigned width, class Warp>
SHOAL_KERNEL void copy_short_rows(const Warp& warp, const RowCopy& piece, uint64_t begin, uint64_t end) {
  const uint32_t row_words = static_cast<uint32_t>(piece.row_bytes / width);
  const uint32_t step_rows = kWarpLanes / row_words;
  const uint32_t step_words = kWarpLanes % row_words;
  const uint64_t first = begin / width;
  const uint64_t words = (end - begin) / width;
  typename Warp::template PerLane<uint64_t> rows{};
  typename Warp::template PerLane<uint32_t> columns{};
  warp.each_lane([&](unsigned lane) {
    rows[lane] = (first + lane) / row_words;
    columns[lane] = static_cast<uint32_t>((first + lane) % row_words);
  });
  for (uint64_t done = 0; done < words; done += kWarpLanes) {
    warp.each_lane([&](unsigned lane) {
      if (done + lane >= words) return;
      const std::byte* source = piece.source + rows[lane] * piece.source_stride;
      std::byte* target = piece.target + rows[lane] * piece.target_stride;
      store<width>(target + columns[lane] * width, load<width>(source + columns[lane] * width));
      rows[lane] += step_rows;
      columns[lane] += step_words;
      if (columns[lane] >= row_words) {
        columns[lane] -= row_words;
        ++rows[lane];
      }
    });
  }
}

template <class Warp>
SHOAL_KERNEL void copy_long_rows(const Warp& warp, const RowCopy& piece, uint64_t begin, uint64_t end) {
  uint64_t row = begin / piece.row_bytes;
  uint64_t column = begin % piece.row_bytes;
  while (begin < end) {
    uint64_t bytes = piece.row_bytes - column;
    if (bytes > end - begin) bytes = end - begin;
    copy_span(warp, piece.target + row * piece.target_stride + column,
              piece.source + row * piece.source_stride + column, bytes);
    begin += bytes;
    column = 0;
    ++row;
  }
}

// Copies unit number warp.index() of the table; beyond the last unit it does nothing.
template <class Warp>
SHOAL_KERNEL void copy_rows(const Warp& warp, RowCopyTable table) {
  if (warp.index() >= table.units) return;
  const RowCopy& piece = entry_of(table.pieces, table.count, &RowCopy::first_unit, warp.index());
  const uint64_t begin = (warp.index() - piece.first_unit) * kRowCopyUnitBytes;
  uint64_t end = piece.row_bytes * piece.rows;
  if (end - begin > kRowCopyUnitBytes) end = begin + kRowCopyUnitBytes;
  if (piece.rows == 1) {
    copy_span(warp, piece.target + begin, piece.source + begin, end - begin);
    return;
  }
  if (piece.row_bytes >= kLongRowBytes) {
    copy_long_rows(warp, piece, begin, end);
    return;
  }
  switch (access_width(address_of(piece.source) | address_of(piece.target) | piece.row_bytes |
                       piece.source_stride | piece.target_stride)) {
    case 16:
      copy_short_rows<16>(warp, piece, begin, end);
      break;
    case 8:
      copy_short_rows<8>(warp, piece, begin, end);
      break;
    case 4:
      copy_short_rows<4>(warp, piece, begin, end);
      break;
    case 2:
      copy_short_rows<2>(warp, piece, begin, end);
      break;
    default:
      copy_short_rows<1>(warp, piece, begin, end);
      break;
  }
}

}  // namespace shoal::gpu
