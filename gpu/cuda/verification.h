// Verification: whether the sources of copies from one device stayed the same while they were copied.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gpu/cuda/devices.h"

namespace shoal::gpu {

// The device must be current in begin() and end(). One thread.
class Verification {
 public:
  // Digests the sources on the first stream, and makes the other streams wait for that; also the streams of
  // the queues, so that no later work of the caller comes before the digests. `streams` must outlive the
  // object.
  static Result<std::unique_ptr<Verification>> begin(DeviceStreams& streams,
                                                     std::span<const DeviceBatch* const> batches);
  ~Verification();
  Verification(const Verification&) = delete;
  Verification& operator=(const Verification&) = delete;

  // After the copies were given to the streams: makes the first stream wait for the others, and digests
  // again.
  Status end();
  int device() const { return streams_.device(); }
  // Once the streams have passed what end() gave them: the tag of a copy whose source changed.
  std::optional<uint32_t> changed() const;

 private:
  struct Source {
    uint32_t tag = 0;
    uint64_t blocks = 0;
  };
  explicit Verification(DeviceStreams& streams) : streams_(streams) {}
  void add(const DeviceCopy& copy);
  Status allocate();
  Status digest(uint64_t* digests);
  // `waiting` waits for what `stream` has been given so far.
  Status make_wait(void* waiting, runtime::Stream stream);
  runtime::Stream first() const { return streams_.streams().front(); }
  uint64_t result_bytes() const { return 2 * blocks_ * sizeof(uint64_t); }

  DeviceStreams& streams_;
  std::vector<DigestList> lists_;
  std::vector<Source> sources_;
  uint64_t blocks_ = 0;
  uint64_t leaves_most_ = 0;     // of one list
  uint64_t* memory_ = nullptr;   // on the device: digests before, digests after, and hashes of leaves
  uint64_t* results_ = nullptr;  // pinned: digests before and after
};

}  // namespace shoal::gpu
