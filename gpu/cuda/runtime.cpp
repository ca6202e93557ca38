#include "gpu/cuda/runtime.h"

#include <cuda_runtime_api.h>

#include <string>

#include "gpu/kernels/launch.h"

namespace shoal::gpu::runtime {

namespace {

Code code_of(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
    case cudaErrorHostMemoryAlreadyRegistered:
    case cudaErrorNotSupported:
      return Code::no_space;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorContextIsDestroyed:
    case cudaErrorStreamCaptureUnsupported:
      return Code::invalid_argument;
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorSystemDriverMismatch:
      return Code::unavailable;
    default:
      return Code::io;
  }
}

std::string text_of(cudaError_t error) {
  return std::string(cudaGetErrorString(error)) + " (" + cudaGetErrorName(error) + ")";
}

Status failed(const char* call, const About& about, Code code, const std::string& why) {
  const std::string size = about.bytes == 0 ? "" : " of " + std::to_string(about.bytes) + " bytes";
  return Status(code, call + size + " on device " + std::to_string(about.device) + ": " + why);
}

Status checked(cudaError_t error, const char* call, const About& about) {
  if (error == cudaSuccess) return ok_status();
  (void)cudaGetLastError();  // the runtime keeps an error that does not end the device until it is read
  return failed(call, about, code_of(error), text_of(error));
}

cudaMemcpyKind kind_of(Direction direction) {
  return direction == Direction::to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
}

cudaStream_t stream_of(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

}  // namespace

Result<int> device_count() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    (void)cudaGetLastError();
    return Status(Code::unavailable, "cudaGetDeviceCount: the driver is older than CUDA " +
                                         std::to_string(CUDART_VERSION / 1000) + "." +
                                         std::to_string(CUDART_VERSION % 1000 / 10) +
                                         ", with which this program was built, or is not installed");
  }
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    return Status(Code::unavailable, "cudaGetDeviceCount: " + text_of(error));
  }
  if (count == 0) return Status(Code::unavailable, "cudaGetDeviceCount: this host has no CUDA device");
  return count;
}

CurrentDevice::CurrentDevice(int device, ThreadOf thread) {
  int before = 0;
  status_ = checked(cudaGetDevice(&before), "cudaGetDevice", {device});
  if (!status_.ok() || before == device) return;
  status_ = checked(cudaSetDevice(device), "cudaSetDevice", {device});
  if (thread == ThreadOf::caller) before_ = before;
}

CurrentDevice::~CurrentDevice() {
  if (before_ >= 0) (void)checked(cudaSetDevice(before_), "cudaSetDevice", {before_});
}

Result<Stream> create_stream(int device) {
  Stream stream = nullptr;
  SHOAL_RETURN_IF_ERROR(checked(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                "cudaStreamCreateWithFlags", {device}));
  return stream;
}

void destroy_stream(Stream stream) {
  (void)checked(cudaStreamDestroy(stream), "cudaStreamDestroy", {});
}

Status synchronize(Stream stream, const About& about) {
  return checked(cudaStreamSynchronize(stream), "cudaStreamSynchronize", about);
}

Result<Event> create_event(int device) {
  Event event = nullptr;
  SHOAL_RETURN_IF_ERROR(
      checked(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync),
              "cudaEventCreateWithFlags", {device}));
  return event;
}

void destroy_event(Event event) {
  (void)checked(cudaEventDestroy(event), "cudaEventDestroy", {});
}

Status record(Event event, void* stream, const About& about) {
  return checked(cudaEventRecord(event, stream_of(stream)), "cudaEventRecord", about);
}

Status wait_event(void* stream, Event event, const About& about) {
  return checked(cudaStreamWaitEvent(stream_of(stream), event, 0), "cudaStreamWaitEvent", about);
}

Status synchronize(Event event, const About& about) {
  return checked(cudaEventSynchronize(event), "cudaEventSynchronize", about);
}

Status copy(void* target, const void* source, Direction direction, Stream stream, const About& about) {
  return checked(cudaMemcpyAsync(target, source, about.bytes, kind_of(direction), stream), "cudaMemcpyAsync",
                 about);
}

Status copy_rows(void* target, const void* source, const Rows& rows, Direction direction, Stream stream,
                 const About& about) {
  return checked(cudaMemcpy2DAsync(target, rows.target_stride, source, rows.source_stride, rows.row_bytes,
                                   rows.rows, kind_of(direction), stream),
                 "cudaMemcpy2DAsync", about);
}

Result<bool> copy_batch(void* const* targets, const void* const* sources, const size_t* sizes, size_t count,
                        Stream stream, const About& about) {
#if CUDART_VERSION >= 12080
  cudaMemcpyAttributes attributes = {};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  size_t first_with_attributes = 0;
#if CUDART_VERSION >= 13000
  const cudaError_t error =
      cudaMemcpyBatchAsync(targets, sources, sizes, count, &attributes, &first_with_attributes, 1, stream);
#else
  size_t failed_index = 0;
  const cudaError_t error = cudaMemcpyBatchAsync(const_cast<void**>(targets), const_cast<void**>(sources),
                                                 const_cast<size_t*>(sizes), count, &attributes,
                                                 &first_with_attributes, 1, &failed_index, stream);
#endif
  if (error == cudaErrorCallRequiresNewerDriver) {
    (void)cudaGetLastError();
    return false;
  }
  SHOAL_RETURN_IF_ERROR(checked(error, "cudaMemcpyBatchAsync", about));
  return true;
#else
  (void)targets, (void)sources, (void)sizes, (void)count, (void)stream, (void)about;
  return false;
#endif
}

Status copy_on_device(const RowCopyList& list, Stream stream, const About& about) {
  return checked(static_cast<cudaError_t>(launch_row_copies(list, stream)), "cudaLaunchKernel", about);
}

Status digest(const DigestList& list, uint64_t* leaf_hashes, uint64_t* digests, Stream stream,
              const About& about) {
  return checked(static_cast<cudaError_t>(launch_digests(list, leaf_hashes, digests, stream)),
                 "cudaLaunchKernel", about);
}

Status call_host(Stream stream, void (*function)(void*), void* argument, const About& about) {
  return checked(cudaLaunchHostFunc(stream, function, argument), "cudaLaunchHostFunc", about);
}

Status register_memory(void* memory, const About& about) {
  return checked(cudaHostRegister(memory, about.bytes, cudaHostRegisterPortable), "cudaHostRegister", about);
}

void unregister_memory(void* memory) {
  (void)checked(cudaHostUnregister(memory), "cudaHostUnregister", {});
}

Result<void*> allocate_on_device(Stream stream, const About& about) {
  void* memory = nullptr;
  SHOAL_RETURN_IF_ERROR(checked(cudaMallocAsync(&memory, about.bytes, stream), "cudaMallocAsync", about));
  return memory;
}

void free_on_device(void* memory, Stream stream) {
  (void)checked(cudaFreeAsync(memory, stream), "cudaFreeAsync", {});
}

Result<void*> allocate_pinned(const About& about) {
  void* memory = nullptr;
  SHOAL_RETURN_IF_ERROR(
      checked(cudaHostAlloc(&memory, about.bytes, cudaHostAllocPortable), "cudaHostAlloc", about));
  return memory;
}

void free_pinned(void* memory) {
  (void)checked(cudaFreeHost(memory), "cudaFreeHost", {});
}

Status check_pointer(const void* memory, const About& about) {
  constexpr const char* kCall = "cudaPointerGetAttributes";
  cudaPointerAttributes attributes = {};
  SHOAL_RETURN_IF_ERROR(checked(cudaPointerGetAttributes(&attributes, memory), kCall, about));
  if (attributes.type == cudaMemoryTypeManaged) return ok_status();
  if (attributes.type != cudaMemoryTypeDevice) {
    return failed(kCall, about, Code::invalid_argument,
                  "the pointer is not one to memory of a device, or that memory was freed");
  }
  if (attributes.device == about.device) return ok_status();
  return failed(kCall, about, Code::invalid_argument,
                "the memory is on device " + std::to_string(attributes.device));
}

}  // namespace shoal::gpu::runtime
