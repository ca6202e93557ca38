// What the kernels cost on this machine's first GPU, as ratios of two measurements of one run: digests
// against a copy on the device, packed shards and small tensors against one contiguous copy to the host.
//
//   kernels_bench [MEBIBYTES]    of each buffer on the device; by default 2048, or what fits
//
// Each figure is the median of several rounds, timed with events on a stream of its own. Status 2 without a
// usable GPU, 1 if a ratio misses its target.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "gpu/build_info.h"
#include "gpu/kernels/launch.h"

namespace {

using shoal::gpu::ConversionPiece;
using shoal::gpu::ConversionTable;
using shoal::gpu::DigestPiece;
using shoal::gpu::DigestTable;
using shoal::gpu::RowCopy;
using shoal::gpu::RowCopyTable;

constexpr int kStatusMissed = 1;
constexpr int kStatusUnusable = 2;
constexpr int kRounds = 11;
constexpr uint64_t kMebibyte = uint64_t{1} << 20;

void must(int error, const char* call) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "kernels_bench: %s: %s\n", call, cudaGetErrorString(static_cast<cudaError_t>(error)));
  std::exit(kStatusUnusable);
}

// Memory on the device, or pinned memory of the host. Freed with the process.
std::byte* device_memory(uint64_t bytes) {
  void* address = nullptr;
  must(cudaMalloc(&address, bytes), "cudaMalloc");
  must(cudaMemset(address, 0x5A, bytes), "cudaMemset");
  return static_cast<std::byte*>(address);
}
std::byte* pinned_memory(uint64_t bytes) {
  void* address = nullptr;
  must(cudaHostAlloc(&address, bytes, cudaHostAllocDefault), "cudaHostAlloc");
  return static_cast<std::byte*>(address);
}

class Bench {
 public:
  Bench(std::byte* first, std::byte* second, std::byte* host, uint64_t bytes)
      : first_(first), second_(second), host_(host), bytes_(bytes) {
    must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    must(cudaEventCreate(&begin_), "cudaEventCreate");
    must(cudaEventCreate(&end_), "cudaEventCreate");
    table_ = device_memory(kTableBytes);
    host_table_ = pinned_memory(kTableBytes);
    leaf_hashes_ = reinterpret_cast<uint64_t*>(device_memory(bytes / 4096 + kMebibyte));
    digests_ = reinterpret_cast<uint64_t*>(device_memory(bytes / 65536 + kMebibyte));
  }

  bool run() {
    digests();
    strided_shards(4096, 32'768);
    strided_shards(256, 2048);
    small_tensors();
    conversions();
    return missed_ == 0;
  }

 private:
  static constexpr uint64_t kTableBytes = 4 * kMebibyte;

  // GB/s of `bytes`. `work` enqueues on stream_.
  double measure(uint64_t bytes, const std::function<void()>& work) {
    std::vector<float> rounds_ms;
    for (int round = 0; round < kRounds + 2; ++round) {
      must(cudaEventRecord(begin_, stream_), "cudaEventRecord");
      work();
      must(cudaEventRecord(end_, stream_), "cudaEventRecord");
      must(cudaEventSynchronize(end_), "cudaEventSynchronize");
      float ms = 0;
      must(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
      if (round >= 2) rounds_ms.push_back(ms);  // the first ones load the kernels
    }
    std::sort(rounds_ms.begin(), rounds_ms.end());
    return static_cast<double>(bytes) / 1e6 / rounds_ms[kRounds / 2];
  }

  void show(const char* what, double gb_per_s) { std::printf("%-66s %9.1f GB/s\n", what, gb_per_s); }
  void compare(const char* what, double gb_per_s, double base, double target) {
    const double ratio = gb_per_s / base;
    const bool met = ratio >= target;
    if (!met) ++missed_;
    std::printf("%-66s %9.1f GB/s  ratio %.2f, target %.2f: %s\n", what, gb_per_s, ratio, target,
                met ? "met" : "missed");
  }

  void copy_to_host(const std::byte* from, uint64_t bytes) {
    must(cudaMemcpyAsync(host_, from, bytes, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
  }

  // Uploads a table as part of the timed work, as a save would.
  template <class Piece>
  const Piece* upload(const std::vector<Piece>& pieces) {
    const uint64_t bytes = pieces.size() * sizeof(Piece);
    if (bytes > kTableBytes) std::abort();
    std::copy_n(reinterpret_cast<const std::byte*>(pieces.data()), bytes, host_table_);
    must(cudaMemcpyAsync(table_, host_table_, bytes, cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
    return reinterpret_cast<const Piece*>(table_);
  }
  void pack(const std::vector<RowCopy>& pieces) {
    RowCopyTable table = table_of(pieces);
    table.pieces = upload(pieces);
    must(launch_row_copies(table, stream_), "launch_row_copies");
  }
  void digest(const std::vector<DigestPiece>& pieces) {
    DigestTable table = table_of(pieces);
    table.pieces = upload(pieces);
    must(launch_digests(table, leaf_hashes_, digests_, stream_), "launch_digests");
  }

  void digests() {
    const auto copy_on_device = [&] {
      must(cudaMemcpyAsync(second_, first_, bytes_, cudaMemcpyDeviceToDevice, stream_), "cudaMemcpyAsync");
    };
    std::vector<DigestPiece> read_only;
    std::vector<DigestPiece> fused;
    std::vector<DigestPiece> unaligned;
    append_digest_piece({first_, nullptr, bytes_}, &read_only);
    append_digest_piece({first_, second_, bytes_}, &fused);
    append_digest_piece({first_ + 2, nullptr, bytes_ - 2}, &unaligned);
    const double copy = measure(bytes_, copy_on_device);
    show("copy on the device, cudaMemcpyAsync", copy);
    compare("digests", measure(bytes_, [&] { digest(read_only); }), copy, 0.8);
    show("digests from an address that is a multiple of 2 only", measure(bytes_, [&] { digest(unaligned); }));
    show("copy and digests by one kernel", measure(bytes_, [&] { digest(fused); }));
    show("copy, then digests", measure(bytes_, [&] {
           copy_on_device();
           digest(read_only);
         }));
  }

  // A shard of the columns of a matrix, to the host.
  void strided_shards(uint64_t row_bytes, uint64_t stride) {
    const uint64_t rows = bytes_ / stride;
    const uint64_t bytes = rows * row_bytes;
    std::vector<RowCopy> pieces;
    append_row_copy({first_, second_, row_bytes, rows, stride, row_bytes}, &pieces);
    std::printf("\nrows of %llu bytes, %llu apart, to the host\n", static_cast<unsigned long long>(row_bytes),
                static_cast<unsigned long long>(stride));
    const double plain = measure(bytes, [&] { copy_to_host(first_, bytes); });
    show("contiguous bytes, cudaMemcpyAsync", plain);
    show("packing alone, on the device", measure(bytes, [&] { pack(pieces); }));
    show("cudaMemcpy2DAsync", measure(bytes, [&] {
           must(cudaMemcpy2DAsync(host_, row_bytes, first_, stride, row_bytes, rows, cudaMemcpyDeviceToHost,
                                  stream_),
                "cudaMemcpy2DAsync");
         }));
    compare("packed, then copied",
            measure(bytes,
                    [&] {
                      pack(pieces);
                      copy_to_host(second_, bytes);
                    }),
            plain, 0.9);
  }

  void small_tensors() {
    constexpr int kTensors = 2000;
    std::vector<RowCopy> pieces;
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < kTensors; ++i) {
      const uint64_t size = (i * 2654435761u % 128 + 1) * 512;  // 512 bytes to 64 KiB
      append_row_copy({first_ + i * 65'536 * 2, second_ + bytes, size, 1, 0, 0}, &pieces);
      bytes += size;
    }
    if (kTensors * 65'536 * 2 > bytes_) return;
    std::printf("\n%d tensors of 512 bytes to 64 KiB, to the host\n", kTensors);
    const double plain = measure(bytes, [&] { copy_to_host(first_, bytes); });
    show("as many contiguous bytes, cudaMemcpyAsync", plain);
    show("a cudaMemcpyAsync for each", measure(bytes, [&] {
           for (const RowCopy& piece : pieces) {
             must(cudaMemcpyAsync(host_ + (piece.target - second_), piece.source, piece.row_bytes,
                                  cudaMemcpyDeviceToHost, stream_),
                  "cudaMemcpyAsync");
           }
         }));
    compare("packed, then copied",
            measure(bytes,
                    [&] {
                      pack(pieces);
                      copy_to_host(second_, bytes);
                    }),
            plain, 0.8);
    compare("copied, then unpacked",
            measure(bytes,
                    [&] {
                      must(cudaMemcpyAsync(second_, host_, bytes, cudaMemcpyHostToDevice, stream_),
                           "cudaMemcpyAsync");
                      std::vector<RowCopy> reverse = pieces;
                      for (RowCopy& piece : reverse) {
                        const std::byte* packed = piece.target;
                        piece.target = const_cast<std::byte*>(piece.source);
                        piece.source = packed;
                      }
                      pack(reverse);
                    }),
            plain, 0.8);
  }

  void conversions() {
    std::vector<ConversionPiece> pieces;
    const uint64_t elements = bytes_ / 4;
    append_conversion({first_, second_, elements, shoal::DType::f32, shoal::DType::bf16}, &pieces);
    std::printf("\nconversion on the device\n");
    show("f32 to bf16, bytes read", measure(bytes_, [&] {
           ConversionTable table = table_of(pieces);
           table.pieces = upload(pieces);
           must(launch_conversions(table, stream_), "launch_conversions");
         }));
  }

  std::byte* first_;
  std::byte* second_;
  std::byte* host_;
  uint64_t bytes_;
  std::byte* table_ = nullptr;
  std::byte* host_table_ = nullptr;
  uint64_t* leaf_hashes_ = nullptr;
  uint64_t* digests_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  int missed_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "kernels_bench: this machine has no usable CUDA device: %s\n",
                 cudaGetErrorString(error));
    return kStatusUnusable;
  }
  cudaDeviceProp properties;
  must(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  int driver = 0;
  must(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  size_t free_bytes = 0;
  size_t all_bytes = 0;
  must(cudaMemGetInfo(&free_bytes, &all_bytes), "cudaMemGetInfo");
  uint64_t bytes = (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2048) * kMebibyte;
  bytes = std::min<uint64_t>(bytes, free_bytes / 3) / kMebibyte * kMebibyte;
  if (bytes == 0) {
    std::fprintf(stderr, "kernels_bench: the buffers need at least 1 MiB; %zu bytes of the device are free\n",
                 free_bytes);
    return kStatusUnusable;
  }
  std::printf("%s, driver for CUDA %d.%d, built with %s; buffers of %llu MiB\n\n", properties.name,
              driver / 1000, driver % 1000 / 10, shoal::gpu::cuda_build().data(),
              static_cast<unsigned long long>(bytes / kMebibyte));
  Bench bench(device_memory(bytes), device_memory(bytes), pinned_memory(bytes), bytes);
  return bench.run() ? EXIT_SUCCESS : kStatusMissed;
}
