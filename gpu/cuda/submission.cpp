#include "gpu/cuda/submission.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace shoal::gpu {

namespace {

constexpr size_t kBatchCopiesMax = 4096;  // of one call

bool is_flat(const DeviceCopy& copy) {
  return copy.rows <= 1 || copy.source_stride == copy.row_bytes;
}

}  // namespace

void RingCopies::run(void* copies) {
  for (const Part& part : static_cast<const RingCopies*>(copies)->parts) {
    std::memcpy(part.target, part.source, part.bytes);
  }
}

Submission::Submission(const Devices& devices, DeviceStreams& streams)
    : devices_(devices), streams_(streams), options_(devices.options()), lanes_(streams.streams().size()) {
  for (size_t i = 0; i < lanes_.size(); ++i) lanes_[i].stream = streams.streams()[i];
}

Submission::Lane& Submission::least_loaded() {
  return *std::ranges::min_element(lanes_, {}, &Lane::bytes);
}

Status Submission::add(const DeviceCopy& copy) {
  const uint64_t bytes = copy.row_bytes * copy.rows;
  if (bytes == 0) return ok_status();
  bytes_ += bytes;
  return devices_.pinned_part_end(copy.target, bytes) != nullptr ? add_pinned(copy) : add_through_ring(copy);
}

// One copy must not cross the border of two parts that were pinned by two calls.
Status Submission::add_pinned(const DeviceCopy& copy) {
  if (is_flat(copy)) return add_flat(copy.source, copy.target, copy.row_bytes * copy.rows);
  if (copy.source_stride <= runtime::kStrideMax) return add_rows(copy);
  for (uint64_t row = 0; row < copy.rows; ++row) {
    SHOAL_RETURN_IF_ERROR(
        add_flat(copy.source + row * copy.source_stride, copy.target + row * copy.row_bytes, copy.row_bytes));
  }
  return ok_status();
}

Status Submission::add_flat(const std::byte* source, std::byte* target, uint64_t bytes) {
  const uint64_t part_bytes =
      bytes >= options_.split_bytes ? (bytes + lanes_.size() - 1) / lanes_.size() : bytes;
  for (uint64_t at = 0; at < bytes;) {
    const std::byte* end = devices_.pinned_part_end(target + at, bytes - at);
    const uint64_t step = std::min({part_bytes, bytes - at, static_cast<uint64_t>(end - (target + at))});
    SHOAL_RETURN_IF_ERROR(copy_flat(least_loaded(), source + at, target + at, step));
    at += step;
  }
  return ok_status();
}

Status Submission::copy_flat(Lane& lane, const std::byte* source, std::byte* target, uint64_t bytes) {
  lane.bytes += bytes;
  if (bytes >= options_.small_bytes) {
    return runtime::copy(target, source, runtime::Direction::to_host, lane.stream, about(bytes));
  }
  lane.targets.push_back(target);
  lane.sources.push_back(source);
  lane.sizes.push_back(bytes);
  lane.small_bytes += bytes;
  return lane.sizes.size() < kBatchCopiesMax ? ok_status() : flush_small(lane);
}

Status Submission::flush_small(Lane& lane) {
  if (lane.sizes.empty()) return ok_status();
  SHOAL_ASSIGN_OR_RETURN(const bool is_copied,
                         runtime::copy_batch(lane.targets.data(), lane.sources.data(), lane.sizes.data(),
                                             lane.sizes.size(), lane.stream, about(lane.small_bytes)));
  for (size_t i = 0; !is_copied && i < lane.sizes.size(); ++i) {
    SHOAL_RETURN_IF_ERROR(runtime::copy(lane.targets[i], lane.sources[i], runtime::Direction::to_host,
                                        lane.stream, about(lane.sizes[i])));
  }
  lane.targets.clear();
  lane.sources.clear();
  lane.sizes.clear();
  lane.small_bytes = 0;
  return ok_status();
}

Status Submission::add_rows(const DeviceCopy& copy) {
  const bool is_split = copy.row_bytes * copy.rows >= options_.split_bytes;
  const uint64_t most = is_split ? (copy.rows + lanes_.size() - 1) / lanes_.size() : copy.rows;
  for (uint64_t row = 0; row < copy.rows;) {
    const std::byte* const source = copy.source + row * copy.source_stride;
    std::byte* const target = copy.target + row * copy.row_bytes;
    const std::byte* end = devices_.pinned_part_end(target, copy.row_bytes);
    const uint64_t fitting = static_cast<uint64_t>(end - target) / copy.row_bytes;
    if (fitting == 0) {  // the row crosses a border
      SHOAL_RETURN_IF_ERROR(add_flat(source, target, copy.row_bytes));
      ++row;
      continue;
    }
    const uint64_t rows = std::min({most, copy.rows - row, fitting});
    Lane& lane = least_loaded();
    lane.bytes += rows * copy.row_bytes;
    SHOAL_RETURN_IF_ERROR(
        runtime::copy_rows(target, source, {copy.row_bytes, rows, copy.source_stride, copy.row_bytes},
                           runtime::Direction::to_host, lane.stream, about(rows * copy.row_bytes)));
    row += rows;
  }
  return ok_status();
}

// The lane whose ring is being filled, once it has room for some of `bytes`, else for all of them.
Result<Submission::Lane*> Submission::lane_with_room(uint64_t bytes) {
  Lane* lane = &lanes_[ring_lane_];
  if (lane->ring_used != 0 && options_.ring_bytes - lane->ring_used < bytes) {
    SHOAL_RETURN_IF_ERROR(flush_ring(*lane));
    ring_lane_ = (ring_lane_ + 1) % lanes_.size();
    lane = &lanes_[ring_lane_];
  }
  if (lane->ring == nullptr) {
    SHOAL_ASSIGN_OR_RETURN(lane->ring, streams_.ring_of(ring_lane_));
  }
  if (lane->ring_copies == nullptr) lane->ring_copies = std::make_unique<RingCopies>();
  return lane;
}

Status Submission::add_through_ring(const DeviceCopy& copy) {
  const bool is_row_wise = copy.row_bytes > options_.ring_bytes || copy.source_stride > runtime::kStrideMax;
  if (is_flat(copy)) return add_row_through_ring(copy.source, copy.target, copy.row_bytes * copy.rows);
  for (uint64_t row = 0; row < copy.rows;) {
    const std::byte* const source = copy.source + row * copy.source_stride;
    std::byte* const target = copy.target + row * copy.row_bytes;
    if (is_row_wise) {
      SHOAL_RETURN_IF_ERROR(add_row_through_ring(source, target, copy.row_bytes));
      ++row;
      continue;
    }
    SHOAL_ASSIGN_OR_RETURN(Lane* const lane, lane_with_room(copy.row_bytes));
    std::byte* const in_ring = lane->ring + lane->ring_used;
    const uint64_t rows = std::min(copy.rows - row, (options_.ring_bytes - lane->ring_used) / copy.row_bytes);
    const uint64_t bytes = rows * copy.row_bytes;
    SHOAL_RETURN_IF_ERROR(runtime::copy_rows(in_ring, source,
                                             {copy.row_bytes, rows, copy.source_stride, copy.row_bytes},
                                             runtime::Direction::to_host, lane->stream, about(bytes)));
    lane->ring_copies->parts.push_back({target, in_ring, bytes});
    lane->ring_used += bytes;
    row += rows;
  }
  return ok_status();
}

Status Submission::add_row_through_ring(const std::byte* source, std::byte* target, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes;) {
    SHOAL_ASSIGN_OR_RETURN(Lane* const lane, lane_with_room(1));
    std::byte* const in_ring = lane->ring + lane->ring_used;
    const uint64_t step = std::min(bytes - at, options_.ring_bytes - lane->ring_used);
    SHOAL_RETURN_IF_ERROR(
        runtime::copy(in_ring, source + at, runtime::Direction::to_host, lane->stream, about(step)));
    lane->ring_copies->parts.push_back({target + at, in_ring, step});
    lane->ring_used += step;
    at += step;
  }
  return ok_status();
}

// The stream copies the ring out before it fills it again.
Status Submission::flush_ring(Lane& lane) {
  if (lane.ring_used == 0) return ok_status();
  ring_copies_.push_back(std::move(lane.ring_copies));
  const uint64_t bytes = std::exchange(lane.ring_used, 0);
  return runtime::call_host(lane.stream, &RingCopies::run, ring_copies_.back().get(), about(bytes));
}

Status Submission::flush() {
  for (Lane& lane : lanes_) {
    SHOAL_RETURN_IF_ERROR(flush_small(lane));
    SHOAL_RETURN_IF_ERROR(flush_ring(lane));
  }
  return ok_status();
}

}  // namespace shoal::gpu
