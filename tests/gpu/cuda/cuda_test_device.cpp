// test_device on the devices of this machine.
#include <cuda_runtime_api.h>

#include <chrono>
#include <map>
#include <thread>

#include "tests/gpu/cuda/stager_job.h"

namespace shoal::gpu::test_device {

namespace {

constexpr auto kDelay = std::chrono::milliseconds(5);  // of a stream, before it writes

struct Opened {
  int devices = 0;
  std::map<void*, int> streams;            // their devices
  std::map<std::byte*, std::byte*> later;  // what write_later() copies to this memory, on the same device
};
Opened& opened() {
  static Opened one;
  return one;
}

void expect_success(cudaError_t error, const char* call) {
  if (error != cudaSuccess) ADD_FAILURE() << call << ": " << cudaGetErrorString(error);
}

// A device that is current while this object lives.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    expect_success(cudaGetDevice(&before_), "cudaGetDevice");
    expect_success(cudaSetDevice(device), "cudaSetDevice");
  }
  ~OnDevice() { expect_success(cudaSetDevice(before_), "cudaSetDevice"); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
};

std::byte* memory_of_device(uint64_t bytes) {
  void* memory = nullptr;
  expect_success(cudaMalloc(&memory, bytes == 0 ? 1 : bytes), "cudaMalloc");
  return static_cast<std::byte*>(memory);
}

}  // namespace

std::string open(uint64_t) {
  const cudaError_t error = cudaGetDeviceCount(&opened().devices);
  if (error != cudaSuccess || opened().devices == 0) {
    (void)cudaGetLastError();
    return std::string("this machine has no usable CUDA device: ") + cudaGetErrorString(error);
  }
  finish();
  for (const auto& [stream, device] : opened().streams) {
    expect_success(cudaStreamDestroy(static_cast<cudaStream_t>(stream)), "cudaStreamDestroy");
  }
  opened().streams.clear();
  return "";
}

int count() {
  return opened().devices;
}

std::byte* allocate(int device, const std::vector<std::byte>& bytes) {
  const OnDevice current(device);
  std::byte* const memory = memory_of_device(bytes.size());
  std::byte* const source = opened().later[memory] = memory_of_device(bytes.size());
  expect_success(cudaMemcpy(source, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
  return memory;
}

void free(std::byte* memory) {
  expect_success(cudaFree(opened().later[memory]), "cudaFree");
  opened().later.erase(memory);
  expect_success(cudaFree(memory), "cudaFree");
}

void* make_stream(int device) {
  const OnDevice current(device);
  cudaStream_t stream = nullptr;
  expect_success(cudaStreamCreate(&stream), "cudaStreamCreate");
  opened().streams[stream] = device;
  return stream;
}

void write_later(const Queue& queue, std::byte* memory, const std::vector<std::byte>& bytes) {
  const OnDevice current(queue.device);
  const auto stream = static_cast<cudaStream_t>(queue.stream);
  const auto sleep = [](void*) { std::this_thread::sleep_for(kDelay); };
  expect_success(cudaLaunchHostFunc(stream, sleep, nullptr), "cudaLaunchHostFunc");
  expect_success(
      cudaMemcpyAsync(memory, opened().later[memory], bytes.size(), cudaMemcpyDeviceToDevice, stream),
      "cudaMemcpyAsync");
}

void overwrite_later(const Queue& queue, std::byte* memory, uint64_t bytes) {
  const OnDevice current(queue.device);
  expect_success(cudaMemsetAsync(memory, std::to_integer<int>(kOverwritten), bytes,
                                 static_cast<cudaStream_t>(queue.stream)),
                 "cudaMemsetAsync");
}

bool change_between_digests(int, std::byte*) {
  return false;
}

void finish() {
  for (int device = 0; device < count(); ++device) {
    const OnDevice current(device);
    expect_success(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
}

std::vector<std::byte> read(const std::byte* memory, uint64_t bytes) {
  finish();
  std::vector<std::byte> out(bytes);
  expect_success(cudaMemcpy(out.data(), memory, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  return out;
}

std::vector<std::string> problems() {
  finish();
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return {cudaGetErrorString(error)};
  return {};
}

std::optional<uint64_t> bytes_copied() {
  return std::nullopt;
}

}  // namespace shoal::gpu::test_device
