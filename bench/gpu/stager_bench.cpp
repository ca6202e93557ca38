// What the stager costs on this machine's first GPU, as ratios of two measurements of one run: saves and
// loads against plain copies of the same bytes between the device and pinned memory, the time for which the
// caller's thread is held, and what a concurrent kernel loses.
//
//   stager_bench [MEBIBYTES]    of the state on the device; by default 8192, or what fits
//
// Each figure is the median of several rounds. Status 2 without a usable GPU, 1 if a ratio misses its target
// or a byte is wrong.
#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/build_info.h"
#include "gpu/device_stager.h"
#include "gpu/kernels/launch.h"

namespace {

using namespace shoal;
using namespace shoal::gpu;
using Clock = std::chrono::steady_clock;

constexpr int kStatusMissed = 1;
constexpr int kStatusUnusable = 2;
constexpr int kRounds = 7;
constexpr uint64_t kMebibyte = uint64_t{1} << 20;

void must(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "stager_bench: %s: %s\n", call, cudaGetErrorString(error));
  std::exit(kStatusUnusable);
}
void must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "stager_bench: %s\n", status.to_string().c_str());
  std::exit(kStatusUnusable);
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}
double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}
// Seconds that `work` takes; the first round is not counted.
double measure(const std::function<void()>& work) {
  std::vector<double> rounds;
  for (int round = 0; round <= kRounds; ++round) {
    const Clock::time_point start = Clock::now();
    work();
    if (round > 0) rounds.push_back(seconds_since(start));
  }
  return median_of(rounds);
}

// Of two that take turns, so that whatever slows the machine slows both.
std::pair<double, double> measure_both(const std::function<void()>& one, const std::function<void()>& other) {
  std::vector<double> one_s, other_s;
  for (int round = 0; round <= kRounds; ++round) {
    Clock::time_point start = Clock::now();
    one();
    const double s = seconds_since(start);
    start = Clock::now();
    other();
    if (round == 0) continue;
    one_s.push_back(s);
    other_s.push_back(seconds_since(start));
  }
  return {median_of(one_s), median_of(other_s)};
}

std::byte* device_memory(uint64_t bytes) {
  void* address = nullptr;
  must(cudaMalloc(&address, bytes), "cudaMalloc");
  return static_cast<std::byte*>(address);
}
// Shared memory of a file without a name, as a slab is; its pages are present.
MutableByteView slab_memory(uint64_t bytes) {
  const int fd = ::memfd_create("stager_bench", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) std::abort();
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  ::close(fd);
  if (mapped == MAP_FAILED) std::abort();
  return MutableByteView(static_cast<std::byte*>(mapped), bytes);
}
uint64_t resident_kilobytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmRSS:")) return std::strtoull(line.c_str() + 6, nullptr, 10);
  }
  return 0;
}

class Bench {
 public:
  Bench(uint64_t bytes, DeviceStager* stager)
      : bytes_(bytes), stager_(stager), first_(device_memory(bytes)), slab_(slab_memory(bytes)) {
    must(cudaStreamCreate(&stream_), "cudaStreamCreate");
    must(cudaStreamCreateWithFlags(&plain_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    queue_ = {0, stream_};
    fill(0x5A);
  }
  bool run() {
    unpinned_save();
    const Clock::time_point start = Clock::now();
    auto pin = stager_->pin(0, slab_);
    must(pin.status());
    std::printf("%-64s %9.3f s\n", "registering the slab, once for a job", seconds_since(start));
    contiguous_save();
    strided_save(4096, 32'768);
    strided_save(65'536, 131'072);
    small_tensors();
    callers_thread();
    verified_save();
    concurrent_kernel();
    many_saves();
    loads();
    return missed_ == 0;
  }

 private:
  void show(const char* what, uint64_t bytes, double s) {
    std::printf("%-64s %9.2f GB/s\n", what, static_cast<double>(bytes) / 1e9 / s);
  }
  void judge(const char* what, double value, const char* unit, double target, bool met) {
    if (!met) ++missed_;
    std::printf("%-64s %9.3f %s, target %.3f: %s\n", what, value, unit, target, met ? "met" : "missed");
  }
  void compare(const char* what, uint64_t bytes, double s, double plain_s, double target) {
    show(what, bytes, s);
    judge("  ratio", plain_s / s, "", target, plain_s / s >= target);
  }
  void fill(int value) {
    must(cudaMemsetAsync(first_, value, bytes_, stream_), "cudaMemsetAsync");
    must(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  void expect_slab(int value, uint64_t bytes) {
    const bool all_equal = std::memcmp(slab_.data(), slab_.data() + 1, bytes - 1) == 0;
    if (all_equal && slab_[0] == static_cast<std::byte>(value)) return;
    ++missed_;
    std::printf("THE SLAB HOLDS WRONG BYTES\n");
  }
  // A state of tensors of 64 MiB.
  std::vector<DeviceCopy> large_tensors() {
    constexpr uint64_t kTensor = 64 * kMebibyte;
    std::vector<DeviceCopy> copies;
    for (uint64_t at = 0; at < bytes_; at += kTensor) {
      copies.push_back({first_ + at, slab_.data() + at, std::min(kTensor, bytes_ - at)});
    }
    return copies;
  }
  std::shared_ptr<DeviceWork> start(const std::vector<DeviceCopy>& copies) {
    const std::vector<DeviceBatch> batches = {{queue_, copies}};
    auto work = stager_->to_host(batches);
    must(work.status());
    return *work;
  }
  void save(const std::vector<DeviceCopy>& copies) { must(start(copies)->wait()); }
  // `work` beside one plain copy between the device and memory of cudaHostAlloc, which takes turns with it.
  std::pair<double, double> beside_plain(cudaMemcpyKind kind, const std::function<void()>& work) {
    void* host = nullptr;
    must(cudaHostAlloc(&host, bytes_, cudaHostAllocDefault), "cudaHostAlloc");
    std::memset(host, 0x77, bytes_);
    const auto plain = [&] {
      void* const target = kind == cudaMemcpyDeviceToHost ? host : first_;
      const void* const source = kind == cudaMemcpyDeviceToHost ? first_ : host;
      must(cudaMemcpyAsync(target, source, bytes_, kind, plain_), "cudaMemcpyAsync");
      must(cudaStreamSynchronize(plain_), "cudaStreamSynchronize");
    };
    const auto seconds = measure_both(plain, work);
    must(cudaFreeHost(host), "cudaFreeHost");
    return seconds;
  }

  void unpinned_save() {
    const uint64_t bytes = std::min(bytes_, 1024 * kMebibyte);
    const std::vector<DeviceCopy> copies = {{first_, slab_.data(), bytes}};
    show("save to a slab that is not pinned, through the ring", bytes, measure([&] { save(copies); }));
    expect_slab(0x5A, bytes);
  }
  void contiguous_save() {
    fill(0x33);
    const auto [plain_s, s] = beside_plain(cudaMemcpyDeviceToHost, [&] { save(large_tensors()); });
    show("plain copy to pinned memory, cudaMemcpyAsync", bytes_, plain_s);
    compare("save of tensors of 64 MiB", bytes_, s, plain_s, 0.95);
    expect_slab(0x33, bytes_);
  }
  void strided_save(uint64_t row_bytes, uint64_t stride) {
    const uint64_t rows = bytes_ / stride;
    const uint64_t bytes = rows * row_bytes;
    std::printf("\nrows of %llu bytes, %llu apart\n", static_cast<unsigned long long>(row_bytes),
                static_cast<unsigned long long>(stride));
    const std::vector<DeviceCopy> whole = {{first_, slab_.data(), bytes}};
    const std::vector<DeviceCopy> strided = {{first_, slab_.data(), row_bytes, rows, stride, row_bytes}};
    const auto [whole_s, s] = measure_both([&] { save(whole); }, [&] { save(strided); });
    show("save of as many contiguous bytes", bytes, whole_s);
    compare("save of the rows", bytes, s, whole_s, 0.9);
  }
  void small_tensors() {
    constexpr uint64_t kTensors = 2000;
    std::vector<DeviceCopy> copies;
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < kTensors; ++i) {
      const uint64_t size = (i * 2654435761u % 128 + 1) * 512;  // 512 bytes to 64 KiB
      copies.push_back({first_ + i * 131'072, slab_.data() + bytes, size});
      bytes += size;
    }
    std::printf("\n2000 tensors of 512 bytes to 64 KiB\n");
    const std::vector<DeviceCopy> whole = {{first_, slab_.data(), bytes}};
    const auto [whole_s, s] = measure_both([&] { save(whole); }, [&] { save(copies); });
    show("save of as many contiguous bytes", bytes, whole_s);
    compare("save of the tensors", bytes, s, whole_s, 0.8);
    for (DeviceCopy& copy : copies) {
      std::byte* const on_device = const_cast<std::byte*>(copy.source);
      copy.source = std::exchange(copy.target, on_device);
    }
    show("load of the tensors, by one thread", bytes, measure([&] { load(copies, 1); }));
  }
  void callers_thread() {
    const std::vector<DeviceCopy> copies = large_tensors();
    std::vector<double> until_s, stream_s;
    for (int round = 0; round <= kRounds; ++round) {
      fill(round);
      Clock::time_point begin = Clock::now();
      std::shared_ptr<DeviceWork> work = start(copies);
      until_s.push_back(seconds_since(begin));
      must(work->wait());
      expect_slab(round, bytes_);
      begin = Clock::now();
      work = start(copies);
      must(work->make_wait(stream_, 0));
      stream_s.push_back(seconds_since(begin));
      must(cudaMemsetAsync(first_, 0xFF, bytes_, stream_), "cudaMemsetAsync");  // training goes on
      must(work->wait());
      expect_slab(round, bytes_);
    }
    std::printf("\n");
    judge("the caller's thread is held, until", median_of(until_s) * 1e3, "ms", 1,
          median_of(until_s) <= 1e-3);
    judge("the caller's thread is held, stream", median_of(stream_s) * 1e3, "ms", 1,
          median_of(stream_s) <= 1e-3);
    std::printf("%-64s %9.3f ms\n", "the caller's thread is held, wait",
                measure([&] { save(copies); }) * 1e3);
  }
  void verified_save() {
    const std::vector<DeviceBatch> batches = {{queue_, large_tensors()}};
    const auto verified = [&] {
      auto work = stager_->to_host(batches, [](uint32_t) { return std::string("a tensor"); });
      must(work.status());
      return *work;
    };
    fill(1);
    const auto [plain_s, s] =
        measure_both([&] { save(batches[0].copies); }, [&] { must(verified()->wait()); });
    std::printf("\n");
    show("save of tensors of 64 MiB", bytes_, plain_s);
    show("  with verify_unchanged", bytes_, s);
    Clock::time_point begin = Clock::now();
    const std::shared_ptr<DeviceWork> work = verified();
    std::printf("%-64s %9.3f ms\n", "  the caller's thread is held", seconds_since(begin) * 1e3);
    must(cudaMemsetAsync(first_ + bytes_ - 1, 2, 1, stream_), "cudaMemsetAsync");  // too early
    if (work->wait().code() == Code::invalid_argument) return;
    ++missed_;
    std::printf("A CHANGE DURING THE SAVE WAS NOT FOUND\n");
  }
  // Launches of a kernel that reads memory as fast as it can: what it loses beside a save.
  void concurrent_kernel() {
    const uint64_t bytes = std::min(bytes_, 2048 * kMebibyte);
    std::vector<DigestPiece> pieces;
    append_digest_piece({first_, nullptr, bytes}, &pieces);
    DigestTable table = table_of(pieces);
    const uint64_t table_bytes = pieces.size() * sizeof(DigestPiece);
    std::byte* const entries = device_memory(table_bytes);
    must(cudaMemcpy(entries, pieces.data(), table_bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    table.pieces = reinterpret_cast<const DigestPiece*>(entries);
    auto* const hashes = reinterpret_cast<uint64_t*>(device_memory(table.leaves * 8));
    auto* const digests = reinterpret_cast<uint64_t*>(device_memory(table.blocks * 8));
    cudaEvent_t begin = nullptr, end = nullptr;
    must(cudaEventCreate(&begin), "cudaEventCreate");
    must(cudaEventCreate(&end), "cudaEventCreate");
    // About 60 ms of kernels: less than the save takes.
    const auto kernels_ms = [&](bool beside_save) {
      std::shared_ptr<DeviceWork> work;
      if (beside_save) work = start(large_tensors());
      must(cudaEventRecord(begin, stream_), "cudaEventRecord");
      for (int i = 0; i < 60; ++i) {
        must(static_cast<cudaError_t>(launch_digests(table, hashes, digests, stream_)), "launch_digests");
      }
      must(cudaEventRecord(end, stream_), "cudaEventRecord");
      must(cudaEventSynchronize(end), "cudaEventSynchronize");
      float ms = 0;
      must(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
      if (work != nullptr) must(work->wait());
      return static_cast<double>(ms);
    };
    std::vector<double> alone, beside;
    for (int round = 0; round <= kRounds; ++round) {
      alone.push_back(kernels_ms(false));
      beside.push_back(kernels_ms(true));
    }
    std::printf("\n%-64s %9.3f ms\n", "kernels that read memory at full speed, alone", median_of(alone));
    const double slower = median_of(beside) / median_of(alone) - 1;
    judge("  slower beside a save", slower, "", 0.05, slower <= 0.05);
  }
  void many_saves() {
    const uint64_t bytes = std::min(bytes_, 16 * kMebibyte);
    const std::vector<DeviceCopy> copies = {{first_, slab_.data(), bytes}};
    for (int i = 0; i < 10; ++i) save(copies);
    const uint64_t before = resident_kilobytes();
    size_t free_before = 0, free_after = 0, all = 0;
    must(cudaMemGetInfo(&free_before, &all), "cudaMemGetInfo");
    for (int i = 0; i < 1000; ++i) save(copies);
    must(cudaMemGetInfo(&free_after, &all), "cudaMemGetInfo");
    const double grown_mb = (static_cast<double>(resident_kilobytes()) - static_cast<double>(before)) / 1024 +
                            (static_cast<double>(free_before) - static_cast<double>(free_after)) / 1048576;
    std::printf("\n");
    judge("memory of host and device that 1,000 saves leave behind", grown_mb, "MiB", 1, grown_mb <= 1);
  }
  void loads() {
    std::printf("\n");
    std::memset(slab_.data(), 0x77, slab_.size());
    std::vector<DeviceCopy> blocks;  // as they are verified
    for (uint64_t at = 0; at < bytes_; at += kMebibyte) {
      blocks.push_back({slab_.data() + at, first_ + at, kMebibyte});
    }
    for (int threads : {1, 4, 8}) {
      fill(0);
      const auto [plain_s, s] = beside_plain(cudaMemcpyHostToDevice, [&] { load(blocks, threads); });
      if (threads == 1) show("plain copy from pinned memory, cudaMemcpyAsync", bytes_, plain_s);
      const std::string what = "load in blocks of 1 MiB, by " + std::to_string(threads) + " threads";
      compare(what.c_str(), bytes_, s, plain_s, 0.95);
    }
    fill(0);
    load(blocks, 4);
    std::memset(slab_.data(), 0, slab_.size());
    save(large_tensors());
    expect_slab(0x77, bytes_);
  }
  void load(const std::vector<DeviceCopy>& copies, int threads) {
    const Queue queues[] = {queue_};
    auto upload = stager_->begin_upload(queues);
    must(upload.status());
    const auto put_share = [&](size_t first) {
      for (size_t i = first; i < copies.size(); i += static_cast<size_t>(threads)) {
        must((*upload)->put(queue_, std::span(&copies[i], 1)));
      }
    };
    std::vector<std::thread> others;
    for (int thread = 1; thread < threads; ++thread) others.emplace_back(put_share, thread);
    put_share(0);
    for (std::thread& other : others) other.join();
    must((*upload)->finish());
  }

  const uint64_t bytes_;
  DeviceStager* const stager_;
  std::byte* const first_;
  const MutableByteView slab_;
  cudaStream_t stream_ = nullptr, plain_ = nullptr;
  Queue queue_;
  int missed_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  auto stager = make_device_stager();
  if (!stager.ok()) {
    std::fprintf(stderr, "stager_bench: %s\n", stager.status().to_string().c_str());
    return kStatusUnusable;
  }
  cudaDeviceProp properties;
  must(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  size_t free_bytes = 0, all_bytes = 0;
  must(cudaMemGetInfo(&free_bytes, &all_bytes), "cudaMemGetInfo");
  const uint64_t host_bytes = static_cast<uint64_t>(::sysconf(_SC_AVPHYS_PAGES)) * 4096;
  uint64_t bytes = (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 8192) * kMebibyte;
  bytes = std::min({bytes, static_cast<uint64_t>(free_bytes) / 2, host_bytes / 3}) / kMebibyte * kMebibyte;
  if (bytes < 512 * kMebibyte) {
    std::fprintf(stderr, "stager_bench: the state needs at least 512 MiB\n");
    return kStatusUnusable;
  }
  std::printf("%s, built with %s; a state of %llu MiB\n\n", properties.name, shoal::gpu::cuda_build().data(),
              static_cast<unsigned long long>(bytes / kMebibyte));
  Bench bench(bytes, stager->get());
  return bench.run() ? EXIT_SUCCESS : kStatusMissed;
}
