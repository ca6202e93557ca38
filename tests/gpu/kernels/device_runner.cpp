#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "gpu/kernels/launch.h"
#include "tests/gpu/kernels/kernel_runner.h"

namespace shoal::gpu {

namespace {

void expect_success(int error, const char* call) {
  if (error != cudaSuccess) {
    ADD_FAILURE() << call << ": " << cudaGetErrorString(static_cast<cudaError_t>(error));
  }
}

class DeviceMemory final : public KernelMemory {
 public:
  explicit DeviceMemory(size_t bytes) : bytes_(bytes) {
    void* address = nullptr;
    expect_success(cudaMalloc(&address, bytes == 0 ? 1 : bytes), "cudaMalloc");
    address_ = static_cast<std::byte*>(address);
  }
  ~DeviceMemory() override { expect_success(cudaFree(address_), "cudaFree"); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::byte* address() override { return address_; }
  void write(const std::vector<std::byte>& bytes) override {
    ASSERT_LE(bytes.size(), bytes_);
    expect_success(cudaMemcpy(address_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  std::vector<std::byte> read() override {
    std::vector<std::byte> bytes(bytes_);
    expect_success(cudaMemcpy(bytes.data(), address_, bytes_, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return bytes;
  }

 private:
  size_t bytes_;
  std::byte* address_ = nullptr;
};

// The entries of a table, copied to the device.
template <class Piece>
class DeviceEntries {
 public:
  explicit DeviceEntries(const std::vector<Piece>& pieces) : memory_(pieces.size() * sizeof(Piece)) {
    expect_success(
        cudaMemcpy(memory_.address(), pieces.data(), pieces.size() * sizeof(Piece), cudaMemcpyHostToDevice),
        "cudaMemcpy");
  }
  const Piece* address() { return reinterpret_cast<const Piece*>(memory_.address()); }

 private:
  DeviceMemory memory_;
};

class DeviceRunner final : public KernelRunner {
 public:
  DeviceRunner() { expect_success(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream"); }
  ~DeviceRunner() override { expect_success(cudaStreamDestroy(stream_), "cudaStreamDestroy"); }
  DeviceRunner(const DeviceRunner&) = delete;
  DeviceRunner& operator=(const DeviceRunner&) = delete;

  std::unique_ptr<KernelMemory> allocate(size_t bytes) override {
    return std::make_unique<DeviceMemory>(bytes);
  }
  void run_row_copies(const std::vector<RowCopy>& pieces) override {
    DeviceEntries entries(pieces);
    RowCopyTable table = table_of(pieces);
    table.pieces = entries.address();
    expect_success(launch_row_copies(table, stream_), "launch_row_copies");
    finish();
  }
  std::vector<uint64_t> run_digests(const std::vector<DigestPiece>& pieces) override {
    DeviceEntries entries(pieces);
    DigestTable table = table_of(pieces);
    table.pieces = entries.address();
    DeviceMemory leaf_hashes(table.leaves * sizeof(uint64_t));
    DeviceMemory digests(table.blocks * sizeof(uint64_t));
    expect_success(launch_digests(table, reinterpret_cast<uint64_t*>(leaf_hashes.address()),
                                  reinterpret_cast<uint64_t*>(digests.address()), stream_),
                   "launch_digests");
    finish();
    std::vector<uint64_t> read(table.blocks);
    expect_success(
        cudaMemcpy(read.data(), digests.address(), read.size() * sizeof(uint64_t), cudaMemcpyDeviceToHost),
        "cudaMemcpy");
    return read;
  }
  void run_conversions(const std::vector<ConversionPiece>& pieces) override {
    DeviceEntries entries(pieces);
    ConversionTable table = table_of(pieces);
    table.pieces = entries.address();
    expect_success(launch_conversions(table, stream_), "launch_conversions");
    finish();
  }

 private:
  void finish() { expect_success(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

  cudaStream_t stream_ = nullptr;
};

}  // namespace

std::unique_ptr<KernelRunner> make_device_runner(std::string* reason) {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    *reason = std::string("this machine has no usable CUDA device: ") + cudaGetErrorString(error);
    return nullptr;
  }
  return std::make_unique<DeviceRunner>();
}

}  // namespace shoal::gpu
