// DeviceStager: copies between memory of CUDA devices and host memory, beside the work of the caller's
// streams. gpu/cuda/ implements it. docs/explanation/gpu-staging.md explains the order of copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shoal/bytes.h"
#include "shoal/status.h"

namespace shoal::gpu {

// A stream of the caller, which orders the caller's work on a device.
struct Queue {
  int device = 0;
  void* stream = nullptr;  // a cudaStream_t; nullptr is the default stream of the device
  friend auto operator<=>(const Queue&, const Queue&) = default;
};

// Copies `rows` rows of `row_bytes` bytes. Row n begins n strides after the first one, in source and target.
// Strides are unused with one row.
struct DeviceCopy {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  uint64_t row_bytes = 0;
  uint64_t rows = 1;
  uint64_t source_stride = 0;
  uint64_t target_stride = 0;
  uint32_t tag = 0;  // any number: NameOfTag has a name for it
};

// What an error calls the source of a copy. Called by the thread that waits.
using NameOfTag = std::function<std::string(uint32_t tag)>;

// Copies whose device memory belongs to one queue.
struct DeviceBatch {
  Queue queue;
  std::vector<DeviceCopy> copies;
  // Between two targets of copies to the host, this many bytes or fewer belong to nobody: they may get any
  // value, so that small neighbours cross the bus together.
  uint64_t gap_bytes = 0;
};

// Whose thread makes a call. A thread of the caller has its current CUDA device again when a call returns. A
// thread of Shoal does not: to restore a device that it never chose would create a context there.
enum class ThreadOf { caller, shoal };
inline constexpr int kCurrentDevice = -1;  // the one that is current on the calling thread

// Copies in progress. Any thread may use it.
class DeviceWork {
 public:
  // Waits until all copies have ended.
  virtual ~DeviceWork() = default;
  // Blocks this thread until all copies have ended. After an error the targets have undefined contents, and
  // no copy writes to them any more. Code::invalid_argument: a source changed, see to_host.
  virtual Status wait(ThreadOf thread = ThreadOf::caller) = 0;
  // Work that is submitted to `stream` after this call waits for the copies. The call does not block this
  // thread. If the copies have ended, it returns their outcome. A `stream` of nullptr is the default stream
  // of `device`.
  virtual Status make_wait(void* stream, int device = kCurrentDevice) = 0;
};

// The copies of one load from host memory to devices, through a bounded window of pinned memory.
class DeviceUpload {
 public:
  // Waits until all copies have ended.
  virtual ~DeviceUpload() = default;
  // Copies the sources into the window, which may block until it has room, and starts the copies from there.
  // Each source is contiguous, and may change when the call returns. Any thread may call it. The targets of
  // copies in progress must not overlap.
  virtual Status put(const Queue& queue, std::span<const DeviceCopy> copies) = 0;
  // Waits until all copies have ended: their targets are then visible to every stream. Returns the first
  // error of this upload.
  virtual Status finish() = 0;
};

// Numbers that a device stager works by. The defaults meet the targets for saves on an H100
// (docs/explanation/gpu.md); they were not searched for.
struct DeviceStagerOptions {
  uint32_t streams = 2;                             // of each device
  uint64_t register_bytes_max = uint64_t{1} << 30;  // of one call that pins memory
  uint64_t pinned_bytes_max = 0;                    // by pin(); 0: no limit
  uint64_t small_bytes = uint64_t{256} << 10;       // fewer bytes of one row are packed, or copied in batches
  uint64_t packed_bytes = uint64_t{8} << 20;  // of each stream, on the device: for small pieces of saves
  uint64_t split_bytes = uint64_t{32} << 20;  // that many bytes and more use all streams
  uint64_t ring_bytes = uint64_t{8} << 20;    // of each stream, for targets that are not pinned
  uint64_t window_bytes = uint64_t{1} << 20;  // of one part of the window of an upload
  uint32_t window_parts = 16;
};

// One thread at a time may use it, except for what it returns. Every error names the call that failed, the
// device and the size: Code::invalid_argument for a wrong pointer, stream or device, Code::no_space for
// memory that is missing, Code::unavailable without a usable device or driver, Code::io for a device that is
// lost. Code::refused: this process was forked from the one that made the stager.
class DeviceStager {
 public:
  virtual ~DeviceStager() = default;

  // Code::invalid_argument: `memory` does not lie on the queue's device. Reads no byte of it.
  virtual Status check_memory(const Queue& queue, const void* memory, uint64_t bytes) = 0;
  // Pins host memory whose pages are present, so that copies to it run beside the host. The memory is
  // unpinned when the returned object is destroyed, which first waits for copies to it. Code::no_space: the
  // device or the system cannot pin it, or it exceeds pinned_bytes_max. Copies still work, but pass through a
  // small ring.
  virtual Result<std::shared_ptr<void>> pin(int device, MutableByteView memory) = 0;
  // Starts copies from devices to host memory, where each target is contiguous. They run on streams of the
  // stager, after all work that was submitted to the queues before. After an error no copy is in progress.
  //
  // With `name_of`, the device digests all sources before and after the copies, and wait() compares: if one
  // changed, its error has the name of its tag. The queues wait for the first digests. Of strided rows what
  // lies between them must not change either. A change that is undone before the second digest is not seen.
  virtual Result<std::shared_ptr<DeviceWork>> to_host(std::span<const DeviceBatch> batches,
                                                      NameOfTag name_of = nullptr) = 0;
  // Begins a load into memory of these queues. Copies run after all that the queues have been given so far.
  virtual Result<std::unique_ptr<DeviceUpload>> begin_upload(std::span<const Queue> queues) = 0;
};

// Code::unavailable: this program was built without CUDA, or has no driver, an older driver, or no device.
Result<std::unique_ptr<DeviceStager>> make_device_stager(const DeviceStagerOptions& options = {});

}  // namespace shoal::gpu
