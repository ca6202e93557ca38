#include "tests/gpu/cuda/stager_job.h"

#include <sys/mman.h>

#include <cstring>
#include <random>

namespace shoal::gpu {

namespace {

uint64_t place_bytes(const DeviceTensor& tensor, uint64_t alignment) {
  return (tensor.packed_bytes() + alignment - 1) / alignment * alignment;
}

}  // namespace

std::vector<std::byte> noise(uint64_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> out(bytes);
  for (std::byte& one : out) one = static_cast<std::byte>(random());
  return out;
}

DeviceStagerOptions small_options(uint64_t seed) {
  std::mt19937_64 random(seed);
  DeviceStagerOptions options;
  options.streams = 1 + random() % 4;
  options.register_bytes_max = 4096 * (1 + random() % 8);
  options.small_bytes = 1 + random() % 4096;
  options.packed_bytes = 2048 + random() % 16384;
  options.split_bytes = 4096 + random() % 16384;
  options.ring_bytes = 512 + random() % 4096;
  options.window_bytes = 512 + random() % 4096;
  options.window_parts = 1 + random() % 5;
  return options;
}

DeviceTensor::DeviceTensor(Queue queue_in, uint64_t rows_in, uint64_t row_bytes_in, uint64_t stride_in,
                           uint64_t seed)
    : queue(queue_in),
      rows(rows_in),
      row_bytes(row_bytes_in),
      stride(stride_in),
      bytes(noise(rows * stride, seed)),
      memory(test_device::allocate(queue.device, bytes)) {}

DeviceTensor::~DeviceTensor() {
  test_device::free(memory);
}

std::vector<std::byte> DeviceTensor::packed() const {
  std::vector<std::byte> out;
  for (uint64_t row = 0; row < rows; ++row) {
    out.insert(out.end(), bytes.begin() + static_cast<ptrdiff_t>(row * stride),
               bytes.begin() + static_cast<ptrdiff_t>(row * stride + row_bytes));
  }
  return out;
}

void StagerJob::TearDown() {
  tensors_.clear();
  if (slab_ != nullptr) ::munmap(slab_, kSlabBytes);
}

void StagerJob::make_tensors(uint64_t seed) {
  const int other = test_device::count() - 1;
  queues_ = {{0, test_device::make_stream(0)}, {0, nullptr}, {other, test_device::make_stream(other)}};
  alignment_ = seed % 2 == 0 ? 1 : 64;
  std::mt19937_64 random(seed * 31);
  for (uint64_t i = 0; i < 24; ++i) {
    const uint64_t row_bytes = 1 + random() % 700, rows = i % 3 == 0 ? 1 : 1 + random() % 12;
    const uint64_t bytes = i % 8 == 7 ? 20'000 : row_bytes;
    const uint64_t gap = random() % 3 == 0 ? 0 : random() % 100;
    if (rows * bytes > 60'000) continue;
    tensors_.push_back(
        std::make_unique<DeviceTensor>(queues_[i % queues_.size()], rows, bytes, bytes + gap, seed + i));
  }
}

MutableByteView StagerJob::slab() {
  if (slab_ == nullptr) {
    void* const mapped =
        ::mmap(nullptr, kSlabBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    slab_ = static_cast<std::byte*>(mapped);
    std::memset(slab_, 0, kSlabBytes);  // its pages are present, as pin() requires
  }
  return MutableByteView(slab_, kSlabBytes);
}

std::vector<DeviceBatch> StagerJob::batches() {
  std::vector<DeviceBatch> out;
  for (const Queue& queue : queues_) out.push_back({queue, {}});
  uint64_t at = 0;
  for (const auto& tensor : tensors_) {
    for (DeviceBatch& batch : out) {
      if (batch.queue == tensor->queue) batch.copies.push_back(tensor->to(slab().data() + at));
    }
    at += place_bytes(*tensor, alignment_);
    if (at > kSlabBytes) ADD_FAILURE() << "the slab is too small for this test";
  }
  return out;
}

void StagerJob::compute() const {
  for (const auto& tensor : tensors_) tensor->compute();
}

void StagerJob::train() const {
  for (const auto& tensor : tensors_) tensor->train();
}

void StagerJob::expect_staged() {
  uint64_t at = 0;
  for (const auto& tensor : tensors_) {
    const std::vector<std::byte> wanted = tensor->packed();
    ASSERT_EQ(std::memcmp(slab().data() + at, wanted.data(), wanted.size()), 0)
        << wanted.size() << " bytes at " << at;
    at += place_bytes(*tensor, alignment_);
  }
}

void StagerJob::expect_loaded() const {
  for (const auto& tensor : tensors_) {
    const std::vector<std::byte> all = test_device::read(tensor->memory, tensor->bytes.size());
    for (uint64_t i = 0; i < all.size(); ++i) {
      const std::byte wanted =
          i % tensor->stride < tensor->row_bytes ? tensor->bytes[i] : test_device::kOverwritten;
      ASSERT_EQ(all[i], wanted) << "row " << i / tensor->stride << ", byte " << i % tensor->stride;
    }
  }
}

}  // namespace shoal::gpu
