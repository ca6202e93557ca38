#include "shoal/box.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace shoal {

namespace {
constexpr uint64_t kMaxElements = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());

bool full_in(const Box& inner, const Box& outer, size_t dim) {
  return inner.offsets[dim] == outer.offsets[dim] && inner.sizes[dim] == outer.sizes[dim];
}
}  // namespace

std::optional<uint64_t> element_count(std::span<const uint64_t> sizes) {
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return 0;
  uint64_t count = 1;
  for (uint64_t size : sizes) {
    if (size > kMaxElements / count) return std::nullopt;
    count *= size;
  }
  return count;
}

uint64_t Box::elements() const {
  uint64_t count = 1;
  for (uint64_t size : sizes) count *= size;
  return count;
}

bool Box::empty() const {
  return std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
}

std::string to_string(const Box& box) {
  std::string out = "[";
  for (size_t i = 0; i < box.dims(); ++i) {
    out += fmt::format("{}{}:{}", i == 0 ? "" : ", ", box.offsets[i], box.offsets[i] + box.sizes[i]);
  }
  return out + "]";
}

Box whole(std::span<const uint64_t> shape) {
  return {Dims(shape.size(), 0), Dims(shape.begin(), shape.end())};
}

Status validate_box(const Box& box, std::span<const uint64_t> shape) {
  if (box.offsets.size() != shape.size() || box.sizes.size() != shape.size()) {
    return Status(Code::invalid_argument,
                  fmt::format("a box has {} offsets and {} sizes, and its tensor has {} dimensions",
                              box.offsets.size(), box.sizes.size(), shape.size()));
  }
  for (size_t i = 0; i < shape.size(); ++i) {
    if (box.offsets[i] > shape[i] || box.sizes[i] > shape[i] - box.offsets[i]) {
      return Status(Code::invalid_argument,
                    fmt::format("dimension {} of a box (offset {}, size {}) exceeds the tensor's size {}", i,
                                box.offsets[i], box.sizes[i], shape[i]));
    }
  }
  if (!element_count(box.sizes)) return Status(Code::invalid_argument, "a box has 2^63 or more elements");
  return ok_status();
}

std::optional<Box> intersect(const Box& a, const Box& b) {
  Box both{Dims(a.dims()), Dims(a.dims())};
  for (size_t i = 0; i < a.dims(); ++i) {
    uint64_t begin = std::max(a.offsets[i], b.offsets[i]);
    uint64_t end = std::min(a.offsets[i] + a.sizes[i], b.offsets[i] + b.sizes[i]);
    if (begin >= end) return std::nullopt;
    both.offsets[i] = begin;
    both.sizes[i] = end - begin;
  }
  return both;
}

bool contains(const Box& outer, const Box& inner) {
  if (inner.empty()) return true;
  for (size_t i = 0; i < outer.dims(); ++i) {
    if (inner.offsets[i] < outer.offsets[i]) return false;
    if (inner.offsets[i] + inner.sizes[i] > outer.offsets[i] + outer.sizes[i]) return false;
  }
  return true;
}

std::pair<Box, Box> split(const Box& box, size_t dim, uint64_t at) {
  SHOAL_CHECK(dim < box.dims() && at > 0 && at < box.sizes[dim]);
  std::pair<Box, Box> parts{box, box};
  parts.first.sizes[dim] = at;
  parts.second.offsets[dim] += at;
  parts.second.sizes[dim] -= at;
  return parts;
}

std::optional<uint64_t> contiguous_offset(const Box& outer, const Box& inner) {
  if (inner.empty()) return 0;
  size_t free = inner.dims();  // one past the last dimension that `inner` does not fill
  while (free > 0 && full_in(inner, outer, free - 1)) --free;
  uint64_t offset = 0;
  for (size_t i = 0; i < inner.dims(); ++i) {
    if (i + 1 < free && inner.sizes[i] != 1) return std::nullopt;
    offset = offset * outer.sizes[i] + (inner.offsets[i] - outer.offsets[i]);
  }
  return offset;
}

namespace {

// Covers elements [begin, end) of the rest of `outer`, with the dimensions before `dim` fixed as in `box`.
void add_range(const Box& outer, Box& box, size_t dim, uint64_t below, uint64_t begin, uint64_t end,
               std::vector<Box>& out) {
  if (begin == end) return;
  if (dim == outer.dims()) {
    out.push_back(box);
    return;
  }
  below /= outer.sizes[dim];  // elements per index of this dimension
  uint64_t first = begin / below, last = end / below;
  auto descend = [&](uint64_t index, uint64_t from, uint64_t to) {
    box.offsets[dim] = outer.offsets[dim] + index;
    box.sizes[dim] = 1;
    add_range(outer, box, dim + 1, below, from, to, out);
    box.offsets[dim] = outer.offsets[dim];
    box.sizes[dim] = outer.sizes[dim];
  };
  if (first == last) return descend(first, begin % below, end % below);
  if (begin % below != 0) descend(first++, begin % below, below);
  if (first < last) {
    box.offsets[dim] = outer.offsets[dim] + first;
    box.sizes[dim] = last - first;
    out.push_back(box);
    box.offsets[dim] = outer.offsets[dim];
    box.sizes[dim] = outer.sizes[dim];
  }
  if (end % below != 0) descend(last, 0, end % below);
}

}  // namespace

std::vector<Box> boxes_of_range(const Box& outer, uint64_t begin, uint64_t end) {
  SHOAL_CHECK(begin <= end && end <= outer.elements());
  std::vector<Box> out;
  Box box = outer;
  add_range(outer, box, 0, outer.elements(), begin, end, out);
  return out;
}

namespace detail {

RunLoops make_run_loops(const Box& a, const Box& b) {
  SHOAL_CHECK(a.dims() == b.dims() && a.dims() <= kMaxDims);
  RunLoops loops;
  const size_t dims = a.dims();
  std::array<uint64_t, kMaxDims> begin, size;
  for (size_t i = 0; i < dims; ++i) {
    begin[i] = std::max(a.offsets[i], b.offsets[i]);
    uint64_t end = std::min(a.offsets[i] + a.sizes[i], b.offsets[i] + b.sizes[i]);
    if (begin[i] >= end) return loops;
    size[i] = end - begin[i];
  }
  // From the innermost dimension outwards: a dimension joins the run while all inner ones are full in both
  // boxes.
  loops.run_elements = 1;
  uint64_t a_stride = 1, b_stride = 1;
  bool run_open = true;
  for (size_t i = dims; i-- > 0;) {
    loops.a_start += (begin[i] - a.offsets[i]) * a_stride;
    loops.b_start += (begin[i] - b.offsets[i]) * b_stride;
    if (run_open) {
      loops.run_elements *= size[i];
    } else if (size[i] > 1) {
      loops.level[loops.levels++] = {size[i], a_stride, b_stride};
    }
    run_open = run_open && size[i] == a.sizes[i] && size[i] == b.sizes[i];
    a_stride *= a.sizes[i], b_stride *= b.sizes[i];
  }
  std::reverse(loops.level.begin(), loops.level.begin() + static_cast<std::ptrdiff_t>(loops.levels));
  return loops;
}

}  // namespace detail

}  // namespace shoal
