#include "examples/device_memory.h"

#if SHOAL_EXAMPLES_WITH_CUDA
#include <cuda_runtime_api.h>

#include <string>
#include <vector>
#endif

namespace shoal::example {

#if SHOAL_EXAMPLES_WITH_CUDA

namespace {

Status checked(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return ok_status();
  return Status(Code::unavailable, std::string(call) + ": " + cudaGetErrorString(error));
}

class CudaMemory final : public DeviceMemory {
 public:
  explicit CudaMemory(int device) : device_(device) {}
  ~CudaMemory() override {
    for (void* const memory : allocated_) (void)cudaFree(memory);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }
  Status begin() {
    SHOAL_RETURN_IF_ERROR(checked(cudaSetDevice(device_), "cudaSetDevice"));
    return checked(cudaStreamCreate(&stream_), "cudaStreamCreate");
  }
  int device() const override { return device_; }
  void* stream() const override { return stream_; }
  Result<void*> allocate(uint64_t bytes) override {
    void* memory = nullptr;
    SHOAL_RETURN_IF_ERROR(checked(cudaMalloc(&memory, bytes), "cudaMalloc"));
    allocated_.push_back(memory);
    return memory;
  }
  Status to_device(void* target, ByteView source) override {
    SHOAL_RETURN_IF_ERROR(
        checked(cudaMemcpyAsync(target, source.data(), source.size(), cudaMemcpyHostToDevice, stream_),
                "cudaMemcpyAsync"));
    return checked(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  Status to_host(MutableByteView target, const void* source) override {
    SHOAL_RETURN_IF_ERROR(
        checked(cudaMemcpyAsync(target.data(), source, target.size(), cudaMemcpyDeviceToHost, stream_),
                "cudaMemcpyAsync"));
    return checked(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

 private:
  const int device_;
  cudaStream_t stream_ = nullptr;
  std::vector<void*> allocated_;
};

}  // namespace

Result<std::unique_ptr<DeviceMemory>> DeviceMemory::open(uint32_t rank) {
  int count = 0;
  SHOAL_RETURN_IF_ERROR(checked(cudaGetDeviceCount(&count), "cudaGetDeviceCount"));
  if (count == 0) return Status(Code::unavailable, "this host has no CUDA device");
  auto memory = std::make_unique<CudaMemory>(static_cast<int>(rank % static_cast<uint32_t>(count)));
  SHOAL_RETURN_IF_ERROR(memory->begin());
  return std::unique_ptr<DeviceMemory>(std::move(memory));
}

#else

Result<std::unique_ptr<DeviceMemory>> DeviceMemory::open(uint32_t) {
  return Status(Code::unavailable, "this program was built without CUDA");
}

#endif

}  // namespace shoal::example
