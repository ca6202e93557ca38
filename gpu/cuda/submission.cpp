#include "gpu/cuda/submission.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace shoal::gpu {

namespace {

constexpr size_t kBatchCopiesMax = 4096;  // of one call
constexpr size_t kPackedPiecesMin = 4;    // fewer are not worth a kernel

bool is_flat(const DeviceCopy& copy) {
  return copy.rows <= 1 || copy.source_stride == copy.row_bytes;
}

}  // namespace

void RingCopies::run(void* copies) {
  for (const Part& part : static_cast<const RingCopies*>(copies)->parts) {
    std::memcpy(part.target, part.source, part.bytes);
  }
}

Submission::Submission(const Devices& devices, DeviceStreams& streams, uint64_t gap_bytes)
    : devices_(devices),
      streams_(streams),
      options_(devices.options()),
      gap_bytes_(gap_bytes),
      lanes_(streams.streams().size()) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].index = i;
    lanes_[i].stream = streams.streams()[i];
  }
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
    SHOAL_RETURN_IF_ERROR(step < options_.small_bytes ? copy_small(source + at, target + at, step)
                                                      : copy_large(source + at, target + at, step));
    at += step;
  }
  return ok_status();
}

Status Submission::copy_large(const std::byte* source, std::byte* target, uint64_t bytes) {
  follows_ = false;
  Lane& lane = least_loaded();
  lane.bytes += bytes;
  return runtime::copy(target, source, runtime::Direction::to_host, lane.stream, about(bytes));
}

// Small pieces stay in the order in which they came, and so beside their neighbours, until a lane has enough.
Status Submission::copy_small(const std::byte* source, std::byte* target, uint64_t bytes) {
  Lane* lane = &lanes_[small_lane_];
  if (lane->small.size() == kBatchCopiesMax || lane->small_bytes + bytes > options_.packed_bytes) {
    SHOAL_RETURN_IF_ERROR(flush_small(*lane));
    lane = &least_loaded();
    small_lane_ = lane->index;
  }
  lane->bytes += bytes;
  lane->small_bytes += bytes + gap_bytes_;
  lane->small.push_back({{source, target, bytes}, std::exchange(follows_, true)});
  return ok_status();
}

// How many pieces, from the first one, fill one range of memory that was pinned by one call.
size_t Submission::run_length(std::span<const Small> pieces) const {
  size_t count = 1;
  const RowCopy& first = pieces[0].copy;
  const std::byte* end = first.target + first.row_bytes;
  const std::byte* const part_end = devices_.pinned_part_end(first.target, first.row_bytes);
  for (; count < pieces.size(); ++count) {
    const RowCopy& next = pieces[count].copy;
    if (!pieces[count].follows || next.target < end || next.target > part_end) break;
    if (static_cast<uint64_t>(next.target - end) > gap_bytes_) break;
    if (next.row_bytes > static_cast<uint64_t>(part_end - next.target)) break;
    end = next.target + next.row_bytes;
  }
  return count;
}

Status Submission::flush_small(Lane& lane) {
  const std::vector<Small> pieces = std::exchange(lane.small, {});
  const uint64_t bytes = std::exchange(lane.small_bytes, 0);
  std::byte* packed = nullptr;
  if (pieces.size() >= kPackedPiecesMin && bytes <= options_.packed_bytes) {
    packed = streams_.packing_memory_of(lane.index);
  }
  if (packed == nullptr) return copy_in_batch(lane, pieces);
  std::vector<Small> alone;
  std::span<const Small> rest(pieces);
  while (!rest.empty()) {
    const std::span<const Small> run = rest.first(run_length(rest));
    rest = rest.subspan(run.size());
    if (run.size() < kPackedPiecesMin) {
      alone.insert(alone.end(), run.begin(), run.end());
      continue;
    }
    SHOAL_RETURN_IF_ERROR(copy_packed(lane, run, packed));
    packed += run.back().copy.target + run.back().copy.row_bytes - run.front().copy.target;
  }
  return copy_in_batch(lane, alone);
}

// A kernel packs the pieces to memory of the device, which then crosses the bus as a whole.
Status Submission::copy_packed(Lane& lane, std::span<const Small> run, std::byte* packed) {
  std::byte* const target = run.front().copy.target;
  RowCopyList list;
  for (const Small& piece : run) {
    append_row_copy({piece.copy.source, packed + (piece.copy.target - target), piece.copy.row_bytes}, &list);
    if (list.count < RowCopyList::kMost && &piece != &run.back()) continue;
    SHOAL_RETURN_IF_ERROR(runtime::copy_on_device(list, lane.stream, about(0)));
    list = {};
  }
  const auto bytes = static_cast<uint64_t>(run.back().copy.target + run.back().copy.row_bytes - target);
  return runtime::copy(target, packed, runtime::Direction::to_host, lane.stream, about(bytes));
}

Status Submission::copy_in_batch(Lane& lane, std::span<const Small> pieces) {
  if (pieces.empty()) return ok_status();
  std::vector<void*> targets;
  std::vector<const void*> sources;
  std::vector<size_t> sizes;
  uint64_t bytes = 0;
  for (const Small& piece : pieces) {
    targets.push_back(piece.copy.target);
    sources.push_back(piece.copy.source);
    sizes.push_back(piece.copy.row_bytes);
    bytes += piece.copy.row_bytes;
  }
  SHOAL_ASSIGN_OR_RETURN(const bool is_copied,
                         runtime::copy_batch(targets.data(), sources.data(), sizes.data(), sizes.size(),
                                             lane.stream, about(bytes)));
  for (size_t i = 0; !is_copied && i < sizes.size(); ++i) {
    SHOAL_RETURN_IF_ERROR(
        runtime::copy(targets[i], sources[i], runtime::Direction::to_host, lane.stream, about(sizes[i])));
  }
  return ok_status();
}

Status Submission::add_rows(const DeviceCopy& copy) {
  follows_ = false;
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

// Returns the lane whose ring is being filled if the rest of that ring holds `bytes`. Otherwise flushes it
// and returns the next lane.
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
  follows_ = false;
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
