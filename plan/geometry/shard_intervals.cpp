#include "plan/geometry/shard_intervals.h"

#include <fmt/format.h>

#include <algorithm>

namespace shoal {

namespace {

uint64_t ceil_divide(uint64_t a, uint64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

// Chunk `index` of torch.chunk(length, count): chunks have the rounded-up size, and the last ones are shorter
// or empty.
plan::Interval chunk(uint64_t length, uint64_t count, uint64_t index) {
  uint64_t size = ceil_divide(length, count);
  if (size == 0 || index > length / size) return {length, length};
  uint64_t begin = index * size;
  return {begin, std::min(length, begin + size)};
}

// Appends positions [range.begin, range.end) of the concatenation of `local`. Calls must have ascending
// ranges; `cursor` keeps the position between them.
struct Cursor {
  size_t interval = 0;
  uint64_t position = 0;  // position of that interval's first element
};
void append_positions(const plan::Intervals& local, plan::Interval range, Cursor& cursor,
                      plan::Intervals& out) {
  while (range.begin < range.end) {
    const plan::Interval& here = local[cursor.interval];
    uint64_t length = here.end - here.begin;
    if (range.begin >= cursor.position + length) {
      cursor.position += length;
      ++cursor.interval;
      continue;
    }
    uint64_t begin = here.begin + (range.begin - cursor.position);
    uint64_t end = std::min(here.end, here.begin + (range.end - cursor.position));
    if (!out.empty() && out.back().end == begin) {
      out.back().end = end;
    } else {
      out.push_back({begin, end});
    }
    range.begin += end - begin;
  }
}

}  // namespace

plan::Intervals plan::whole_interval(uint64_t size) {
  return size == 0 ? plan::Intervals{} : plan::Intervals{{0, size}};
}

uint64_t plan::total_length(const plan::Intervals& intervals) {
  uint64_t length = 0;
  for (const plan::Interval& interval : intervals) length += interval.end - interval.begin;
  return length;
}

plan::Intervals plan::shard_of(const plan::Intervals& local, const Placement& placement, uint64_t count,
                               uint64_t index) {
  const uint64_t length = plan::total_length(local);
  plan::Intervals out;
  Cursor cursor;
  if (placement.kind == Placement::Kind::shard) {
    append_positions(local, chunk(length, count, index), cursor, out);
    return out;
  }
  SHOAL_CHECK(placement.kind == Placement::Kind::strided_shard);
  for (uint64_t i = 0; i < placement.split_factor; ++i) {
    plan::Interval outer = chunk(length, placement.split_factor, i);
    if (outer.begin == outer.end) break;
    plan::Interval inner = chunk(outer.end - outer.begin, count, index);
    append_positions(local, {outer.begin + inner.begin, outer.begin + inner.end}, cursor, out);
  }
  return out;
}

std::vector<uint64_t> plan::shards_meeting(const plan::Intervals& local, const Placement& placement,
                                           uint64_t count, plan::Interval range) {
  const uint64_t length = plan::total_length(local);
  const uint64_t factor = placement.kind == Placement::Kind::strided_shard ? placement.split_factor : 1;
  std::vector<uint64_t> found;
  // The positions of the concatenation that lie in the range, one interval at a time.
  uint64_t position = 0;
  for (const plan::Interval& interval : local) {
    const uint64_t here = position;
    position += interval.end - interval.begin;
    if (interval.end <= range.begin || interval.begin >= range.end) continue;
    uint64_t begin = here + (std::max(range.begin, interval.begin) - interval.begin);
    uint64_t end = here + (std::min(range.end, interval.end) - interval.begin);
    const uint64_t outer_size = ceil_divide(length, factor);
    for (uint64_t i = begin / outer_size; i <= (end - 1) / outer_size; ++i) {
      plan::Interval outer = chunk(length, factor, i);
      uint64_t inner_size = ceil_divide(outer.end - outer.begin, count);
      uint64_t first = (std::max(begin, outer.begin) - outer.begin) / inner_size;
      uint64_t last = (std::min(end, outer.end) - 1 - outer.begin) / inner_size;
      for (uint64_t k = first; k <= last; ++k) found.push_back(k);
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

std::vector<Box> plan::boxes_of(std::span<const plan::Intervals> by_dim) {
  const size_t dims = by_dim.size();
  size_t count = 1;
  for (const plan::Intervals& intervals : by_dim) count *= intervals.size();
  std::vector<Box> boxes(count, Box{Dims(dims), Dims(dims)});
  size_t repeat = count;
  for (size_t d = 0; d < dims && count != 0; ++d) {
    repeat /= by_dim[d].size();
    for (size_t i = 0; i < count; ++i) {
      const plan::Interval& interval = by_dim[d][i / repeat % by_dim[d].size()];
      boxes[i].offsets[d] = interval.begin;
      boxes[i].sizes[d] = interval.end - interval.begin;
    }
  }
  return boxes;
}

Status validate_placements(std::span<const Placement> placements, const Mesh& mesh,
                           std::span<const uint64_t> shape) {
  auto bad = [](std::string what) { return Status(Code::invalid_argument, std::move(what)); };
  SHOAL_RETURN_IF_ERROR(mesh.status());
  if (placements.size() != mesh.dims()) {
    return bad(
        fmt::format("{} placements are given for a mesh of {} dimensions", placements.size(), mesh.dims()));
  }
  uint64_t factors = 1;
  for (const Placement& placement : placements) {
    if (placement.kind > Placement::Kind::strided_shard) {
      return bad(fmt::format("a placement has the unknown kind {}", static_cast<unsigned>(placement.kind)));
    }
    const bool sharded = placement.kind != Placement::Kind::replicate;
    const bool strided = placement.kind == Placement::Kind::strided_shard;
    if (sharded ? placement.dim >= shape.size() : placement.dim != 0) {
      return bad(fmt::format("a placement shards dimension {} of a tensor that has {}", placement.dim,
                             shape.size()));
    }
    if (strided ? placement.split_factor == 0 : placement.split_factor != 0) {
      return bad(fmt::format("a placement has the invalid split factor {}", placement.split_factor));
    }
    if (!strided) continue;
    if (placement.split_factor > kMaxSplitFactor / factors) {
      return bad(fmt::format("the product of the split factors exceeds {}", kMaxSplitFactor));
    }
    factors *= placement.split_factor;
  }
  return ok_status();
}

LocalShards shards_at(std::span<const uint64_t> shape, const Mesh& mesh,
                      std::span<const Placement> placements, std::span<const uint64_t> coordinate) {
  std::vector<plan::Intervals> by_dim;
  by_dim.reserve(shape.size());
  for (uint64_t size : shape) by_dim.push_back(plan::whole_interval(size));
  for (size_t i = 0; i < placements.size(); ++i) {
    if (placements[i].kind == Placement::Kind::replicate) continue;
    plan::Intervals& intervals = by_dim[placements[i].dim];
    intervals = plan::shard_of(intervals, placements[i], mesh.shape()[i], coordinate[i]);
  }
  LocalShards out;
  for (plan::Intervals& intervals : by_dim) out.local_shape.push_back(plan::total_length(intervals));
  out.boxes = plan::boxes_of(by_dim);
  for (plan::Intervals& intervals : by_dim) {
    uint64_t position = 0;
    for (plan::Interval& interval : intervals) {
      uint64_t length = interval.end - interval.begin;
      interval = {position, position + length};
      position += length;
    }
  }
  out.local = plan::boxes_of(by_dim);
  return out;
}

}  // namespace shoal
