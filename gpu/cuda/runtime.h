// Every call of the CUDA runtime that the back end makes. A test links tests/gpu/fake_cuda/ in place of the
// runtime. Each error is a Status that names the call, the device and the size.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/device_stager.h"
#include "gpu/kernels/tables.h"
#include "shoal/status.h"

struct CUstream_st;
struct CUevent_st;

namespace shoal::gpu::runtime {

using Stream = CUstream_st*;
using Event = CUevent_st*;

// What an error names: the device, and the bytes that the call is about.
struct About {
  int device = 0;
  uint64_t bytes = 0;
};

// Code::unavailable: no driver, an older driver, or no device.
Result<int> device_count();
// Makes `device` this thread's current device. At the end, restores the one before on a thread of the caller.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device, ThreadOf thread = ThreadOf::caller);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  const Status& status() const { return status_; }

 private:
  int before_ = -1;  // -1: nothing to restore
  Status status_;
};

// Streams do not synchronise with the default stream. The device must be current.
Result<Stream> create_stream(int device);
void destroy_stream(Stream stream);
Status synchronize(Stream stream, const About& about);
// Events keep no times, and a thread that waits for one sleeps. The device must be current.
Result<Event> create_event(int device);
void destroy_event(Event event);
Status record(Event event, void* stream, const About& about);
Status wait_event(void* stream, Event event, const About& about);
Status synchronize(Event event, const About& about);

enum class Direction { to_host, to_device };
Status copy(void* target, const void* source, Direction direction, Stream stream, const About& about);
struct Rows {
  uint64_t row_bytes = 0, rows = 0, source_stride = 0, target_stride = 0;
};
Status copy_rows(void* target, const void* source, const Rows& rows, Direction direction, Stream stream,
                 const About& about);
// Rows further apart than this cannot be copied by copy_rows.
inline constexpr uint64_t kStrideMax = (uint64_t{1} << 31) - 1;
// Several copies in one call. False: runtime or driver are older than 12.8, and nothing was copied.
Result<bool> copy_batch(void* const* targets, const void* const* sources, const size_t* sizes, size_t count,
                        Stream stream, const About& about);
// Packs or unpacks on the device, by a kernel.
Status copy_on_device(const RowCopyList& list, Stream stream, const About& about);
Status digest(const DigestList& list, uint64_t* leaf_hashes, uint64_t* digests, Stream stream,
              const About& about);
// Calls `function` once the stream comes to it. It must not call the runtime.
Status call_host(Stream stream, void (*function)(void*), void* argument, const About& about);

Status register_memory(void* memory, const About& about);
void unregister_memory(void* memory);
// Memory of the stream's device, taken and freed in the order of the stream. The device must be current.
Result<void*> allocate_on_device(Stream stream, const About& about);
void free_on_device(void* memory, Stream stream);
Result<void*> allocate_pinned(const About& about);
void free_pinned(void* memory);
// Code::invalid_argument: the pointer is not one to memory of about.device.
Status check_pointer(const void* memory, const About& about);

}  // namespace shoal::gpu::runtime
