// Submission: gives the copies of one call to the streams of one device.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "gpu/cuda/devices.h"

namespace shoal::gpu {

// Host memory that a stream copies out of its ring when it comes to it.
struct RingCopies {
  struct Part {
    std::byte* target = nullptr;
    const std::byte* source = nullptr;
    uint64_t bytes = 0;
  };
  std::vector<Part> parts;
  static void run(void* copies);  // of a RingCopies
};

// Copies from one device to host memory. Every target is contiguous. One thread.
class Submission {
 public:
  // `devices` and `streams` must outlive this object. `gap_bytes`: DeviceBatch::gap_bytes.
  Submission(const Devices& devices, DeviceStreams& streams, uint64_t gap_bytes);

  Status add(const DeviceCopy& copy);
  // Starts what was collected.
  Status flush();
  uint64_t bytes() const { return bytes_; }
  // They must live until all copies have ended.
  std::vector<std::unique_ptr<RingCopies>> take_ring_copies() { return std::move(ring_copies_); }

 private:
  struct Small {  // a piece that is not started yet
    RowCopy copy;
    bool follows = false;  // no copy came between it and the small piece before it
  };
  struct Lane {  // of one stream
    size_t index = 0;
    runtime::Stream stream = nullptr;
    uint64_t bytes = 0;  // given to it so far
    std::vector<Small> small;
    uint64_t small_bytes = 0;  // of these
    std::byte* ring = nullptr;
    uint64_t ring_used = 0;
    std::unique_ptr<RingCopies> ring_copies;
  };
  Lane& least_loaded();
  Status add_pinned(const DeviceCopy& copy);
  Status add_flat(const std::byte* source, std::byte* target, uint64_t bytes);
  Status add_rows(const DeviceCopy& copy);
  Status copy_large(const std::byte* source, std::byte* target, uint64_t bytes);
  Status copy_small(const std::byte* source, std::byte* target, uint64_t bytes);
  Status flush_small(Lane& lane);
  Status copy_packed(Lane& lane, std::span<const Small> run, std::byte* packed);
  Status copy_in_batch(Lane& lane, std::span<const Small> pieces);
  size_t run_length(std::span<const Small> pieces) const;
  Status add_through_ring(const DeviceCopy& copy);
  Result<Lane*> lane_with_room(uint64_t bytes);
  Status add_row_through_ring(const std::byte* source, std::byte* target, uint64_t bytes);
  Status flush_ring(Lane& lane);
  runtime::About about(uint64_t bytes) const { return {streams_.device(), bytes}; }

  const Devices& devices_;
  DeviceStreams& streams_;
  const DeviceStagerOptions& options_;
  const uint64_t gap_bytes_;
  std::vector<Lane> lanes_;
  size_t ring_lane_ = 0;   // whose ring is being filled
  size_t small_lane_ = 0;  // which collects small pieces
  bool follows_ = false;   // of the next small piece
  uint64_t bytes_ = 0;
  std::vector<std::unique_ptr<RingCopies>> ring_copies_;
};

}  // namespace shoal::gpu
