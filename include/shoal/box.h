// Box: a hyper-rectangle of a tensor, and the operations on boxes that planning needs.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shoal/status.h"

namespace shoal {

using Dims = std::vector<uint64_t>;  // one number per dimension, outermost first; empty for a scalar

inline constexpr size_t kMaxDims = 32;  // a layout rejects a tensor with more, by its fqn

// Product of all sizes; 1 for a scalar. nullopt if it does not fit in 63 bits.
std::optional<uint64_t> element_count(std::span<const uint64_t> sizes);

// Offsets and sizes in elements, one per dimension. A scalar has no dimensions and one element.
struct Box {
  Dims offsets;
  Dims sizes;

  size_t dims() const { return sizes.size(); }
  uint64_t elements() const;                                  // precondition: fits (validate_box)
  bool empty() const;                                         // some size is 0
  friend auto operator<=>(const Box&, const Box&) = default;  // canonical order: offsets, then sizes
};

std::string to_string(const Box& box);  // "[0:4, 8:16]"; "[]" for a scalar
Box whole(std::span<const uint64_t> shape);

// Code::invalid_argument unless `box` has the dimensions of `shape` and lies within it without overflow.
Status validate_box(const Box& box, std::span<const uint64_t> shape);

// The box that both cover; nullopt if it has no element. Two scalars intersect.
std::optional<Box> intersect(const Box& a, const Box& b);
bool contains(const Box& outer, const Box& inner);  // every element of inner is in outer; empty inner: true

// Cuts a box along `dim` before element `at` of that dimension, counted from the start of the box. Requires
// 0 < at < size.
std::pair<Box, Box> split(const Box& box, size_t dim, uint64_t at);

// The index at which `inner` begins in the row-major elements of `outer`, if `inner` is one contiguous run
// there: leading sizes of 1, then one free range, then full dimensions. nullopt otherwise. Requires that
// `inner` lies in `outer`.
std::optional<uint64_t> contiguous_offset(const Box& outer, const Box& inner);

// The boxes, in row-major order, that exactly cover elements [begin, end) of `outer`'s row-major order. There
// are at most 2 * dims - 1 of them, and each is contiguous in `outer`.
std::vector<Box> boxes_of_range(const Box& outer, uint64_t begin, uint64_t end);

// OK iff the non-empty boxes tile `shape` exactly: no overlap, no gap. The message names one overlapping pair
// or one uncovered box. The algorithm sweeps over the outermost dimension and recurses inwards: O(n log n)
// per dimension. No boxes, or only empty boxes, tile a shape with a size of 0.
Status check_tiling(std::span<const Box> boxes, std::span<const uint64_t> shape);

// Calls run(a_offset, b_offset, count) for each maximal row-major run of the intersection of two boxes. An
// offset counts elements in the row-major order of its box. All code that places bytes uses this loop; it
// allocates nothing. Requires that both boxes have the same number of dimensions, at most kMaxDims.
template <class Run>
void for_each_run(const Box& a, const Box& b, Run&& run);

// ---- implementation ----

namespace detail {

// An intersection as nested loops: `levels` counters around runs of `run_elements`.
struct RunLoops {
  struct Level {
    uint64_t count, a_stride, b_stride;  // in elements
  };
  std::array<Level, kMaxDims> level;  // outermost first
  size_t levels = 0;
  uint64_t run_elements = 0;  // 0: the boxes share nothing
  uint64_t a_start = 0, b_start = 0;
};
RunLoops make_run_loops(const Box& a, const Box& b);

}  // namespace detail

template <class Run>
void for_each_run(const Box& a, const Box& b, Run&& run) {
  const detail::RunLoops loops = detail::make_run_loops(a, b);
  if (loops.run_elements == 0) return;
  if (loops.levels == 0) {
    run(loops.a_start, loops.b_start, loops.run_elements);
    return;
  }
  const detail::RunLoops::Level inner = loops.level[loops.levels - 1];
  std::array<uint64_t, kMaxDims> counter{};
  uint64_t a_offset = loops.a_start, b_offset = loops.b_start;
  while (true) {
    uint64_t a_run = a_offset, b_run = b_offset;
    for (uint64_t i = 0; i < inner.count; ++i, a_run += inner.a_stride, b_run += inner.b_stride) {
      run(a_run, b_run, loops.run_elements);
    }
    size_t k = loops.levels - 1;
    while (true) {
      if (k == 0) return;
      --k;
      const detail::RunLoops::Level& level = loops.level[k];
      a_offset += level.a_stride, b_offset += level.b_stride;
      if (++counter[k] < level.count) break;
      a_offset -= level.a_stride * level.count, b_offset -= level.b_stride * level.count;
      counter[k] = 0;
    }
  }
}

}  // namespace shoal
