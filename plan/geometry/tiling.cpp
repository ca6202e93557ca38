// check_tiling. The boxes tile the shape if and only if the sum of their indicator functions, minus that of
// the shape, is zero everywhere. Along the outermost dimension that sum changes only where boxes begin or
// end. It is zero if and only if every change is zero, and a change is again a signed sum of indicator
// functions, with one dimension less. So each box is visited twice per dimension, whatever it overlaps, and
// boxes are not compared pairwise.
#include <fmt/format.h>

#include <algorithm>

#include "shoal/box.h"

namespace shoal {

namespace {

// Bound on extra box visits of a check. Only contrived tilings with many dimensions come near it.
constexpr uint64_t kMaxLooks = uint64_t{1} << 28;

struct Signed {
  uint64_t at = 0;   // position in the swept dimension
  uint32_t box = 0;  // index; the shape itself is the last
  int32_t sign = 0;
};

class Sweep {
 public:
  Sweep(std::vector<const Box*> boxes, size_t dims) : boxes_(std::move(boxes)), dims_(dims), point_(dims) {}

  // True if the signed sum is zero over dimensions [dim, dims). Otherwise point() is its first non-zero
  // element in lexicographic order, which lies at the least corner where the sum changes.
  bool vanishes(std::vector<Signed>& items, size_t dim) {
    looks_ += items.size();
    if (looks_ > kMaxLooks) return false;
    if (dim == dims_) {
      int64_t sum = 0;
      for (const Signed& item : items) sum += item.sign;
      return sum == 0;
    }
    std::vector<Signed> changes;
    changes.reserve(items.size() * 2);
    for (const Signed& item : items) {
      const Box& box = *boxes_[item.box];
      changes.push_back({box.offsets[dim], item.box, item.sign});
      changes.push_back({box.offsets[dim] + box.sizes[dim], item.box, -item.sign});
    }
    std::sort(changes.begin(), changes.end(), [&](const Signed& a, const Signed& b) {
      if (a.at != b.at) return a.at < b.at;
      return order_within(a.box, b.box, dim + 1) < 0;
    });
    std::vector<Signed> group;
    for (size_t begin = 0; begin < changes.size();) {
      size_t end = begin;
      group.clear();
      while (end < changes.size() && changes[end].at == changes[begin].at)
        add(group, changes[end++], dim + 1);
      // All changes add up to zero, so the last one is zero if the others are.
      if (end == changes.size()) break;
      point_[dim] = changes[begin].at;
      if (!group.empty() && !vanishes(group, dim + 1)) return false;
      begin = end;
    }
    return true;
  }

  bool gave_up() const { return looks_ > kMaxLooks; }
  const Dims& point() const { return point_; }

 private:
  int order_within(uint32_t a, uint32_t b, size_t dim) const {
    for (size_t i = dim; i < dims_; ++i) {
      const Box &x = *boxes_[a], &y = *boxes_[b];
      if (x.offsets[i] != y.offsets[i]) return x.offsets[i] < y.offsets[i] ? -1 : 1;
      if (x.sizes[i] != y.sizes[i]) return x.sizes[i] < y.sizes[i] ? -1 : 1;
    }
    return 0;
  }
  // Boxes that are equal in the remaining dimensions cancel or count double.
  void add(std::vector<Signed>& group, const Signed& item, size_t dim) const {
    if (!group.empty() && order_within(group.back().box, item.box, dim) == 0) {
      group.back().sign += item.sign;
      if (group.back().sign == 0) group.pop_back();
    } else {
      group.push_back(item);
    }
  }

  std::vector<const Box*> boxes_;
  size_t dims_;
  Dims point_;
  uint64_t looks_ = 0;
};

bool covers(const Box& box, const Dims& point) {
  for (size_t i = 0; i < point.size(); ++i) {
    if (point[i] < box.offsets[i] || point[i] - box.offsets[i] >= box.sizes[i]) return false;
  }
  return true;
}

// A box that begins at `point`, which no box covers, and that overlaps none of them.
Box uncovered_at(const Dims& point, std::span<const Box* const> boxes, std::span<const uint64_t> shape) {
  Box gap{point, Dims(point.size())};
  for (size_t i = 0; i < point.size(); ++i) gap.sizes[i] = shape[i] - point[i];
  for (const Box* box : boxes) {
    if (!intersect(gap, *box)) continue;
    size_t cut = gap.dims();
    for (size_t i = 0; i < gap.dims(); ++i) {
      if (box->offsets[i] <= point[i]) continue;
      if (cut == gap.dims() || box->offsets[i] - point[i] > box->offsets[cut] - point[cut]) cut = i;
    }
    gap.sizes[cut] = box->offsets[cut] - point[cut];
  }
  return gap;
}

}  // namespace

Status check_tiling(std::span<const Box> boxes, std::span<const uint64_t> shape) {
  std::vector<const Box*> filled;
  for (const Box& box : boxes) {
    SHOAL_RETURN_IF_ERROR(validate_box(box, shape));
    if (!box.empty()) filled.push_back(&box);
  }
  const Box all = whole(shape);
  if (all.empty()) return ok_status();
  std::vector<const Box*> swept = filled;
  swept.push_back(&all);
  std::vector<Signed> items;
  for (uint32_t i = 0; i < swept.size(); ++i) items.push_back({0, i, i < filled.size() ? 1 : -1});
  Sweep sweep(std::move(swept), shape.size());
  if (sweep.vanishes(items, 0)) return ok_status();
  if (sweep.gave_up()) {
    return Status(Code::too_large,
                  fmt::format("the pattern of {} boxes is too complex to check", boxes.size()));
  }
  std::vector<const Box*> over;
  for (const Box* box : filled) {
    if (covers(*box, sweep.point())) over.push_back(box);
  }
  if (over.size() >= 2) {
    return Status(Code::invalid_argument,
                  fmt::format("boxes {} and {} overlap", to_string(*over[0]), to_string(*over[1])));
  }
  return Status(Code::invalid_argument,
                fmt::format("no box covers {}", to_string(uncovered_at(sweep.point(), filled, shape))));
}

}  // namespace shoal
