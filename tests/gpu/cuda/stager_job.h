// StagerJob: a fixture for tests of the CUDA back end, with tensors on devices and a slab. It runs on the
// fake runtime and on a real device: a program links one implementation of the functions in test_device.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/device_stager.h"

namespace shoal::gpu {

// What a trainer does with devices. Errors fail the test.
namespace test_device {

// Before anything else; forgets what was before. Empty, or why this machine has no device to test on.
std::string open(uint64_t seed);
int count();
// Memory for `bytes`, which write_later() will write.
std::byte* allocate(int device, const std::vector<std::byte>& bytes);
void free(std::byte* memory);
void* make_stream(int device);
// Kernels of the caller: they write once the stream of the queue comes to them, and as late as can be had.
void write_later(const Queue& queue, std::byte* memory, const std::vector<std::byte>& bytes);
void overwrite_later(const Queue& queue, std::byte* memory, uint64_t bytes);
inline constexpr std::byte kOverwritten{0x11};
// In the next save that digests at most 64 tensors of each device before and after the copies: changes one
// byte of a tensor in between. False: this implementation cannot.
bool change_between_digests(int device, std::byte* memory);
// Waits until all streams are empty.
void finish();
// The bytes of a device, after what all streams were given.
std::vector<std::byte> read(const std::byte* memory, uint64_t bytes);
// Misuses of the runtime and what was not given back, as far as the implementation can know them.
std::vector<std::string> problems();
// Bytes that have crossed the bus since open(), where the implementation counts them.
std::optional<uint64_t> bytes_copied();

}  // namespace test_device

std::vector<std::byte> noise(uint64_t bytes, uint64_t seed);
// Small sizes that a seed draws, so that small tensors are cut everywhere.
DeviceStagerOptions small_options(uint64_t seed);

// Rows on a device, and the same bytes on the host.
struct DeviceTensor {
  DeviceTensor(Queue queue, uint64_t rows, uint64_t row_bytes, uint64_t stride, uint64_t seed);
  ~DeviceTensor();
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;

  void compute() const { test_device::write_later(queue, memory, bytes); }
  void train() const { test_device::overwrite_later(queue, memory, bytes.size()); }
  uint64_t packed_bytes() const { return rows * row_bytes; }
  DeviceCopy to(std::byte* target) const { return {memory, target, row_bytes, rows, stride, row_bytes}; }
  DeviceCopy from(const std::byte* source) const {
    return {source, memory, row_bytes, rows, row_bytes, stride};
  }
  std::vector<std::byte> packed() const;

  const Queue queue;
  const uint64_t rows, row_bytes, stride;
  const std::vector<std::byte> bytes;
  std::byte* const memory;
};

// Two devices, where there are two, and three streams. The parameter is a seed.
class StagerJob : public ::testing::TestWithParam<uint64_t> {
 protected:
  static constexpr uint64_t kSlabBytes = uint64_t{1} << 18;

  void TearDown() override;
  // Makes the tensors of this seed, on devices that test_device::open() has opened.
  void make_tensors(uint64_t seed);
  MutableByteView slab();
  std::vector<DeviceBatch> batches();
  void compute() const;
  void train() const;
  void expect_staged();
  // Every byte of the tensors is what the seed drew, and what lies between their rows is overwritten.
  void expect_loaded() const;
  static void expect_clean() { EXPECT_THAT(test_device::problems(), ::testing::IsEmpty()); }

  std::vector<Queue> queues_;
  std::vector<std::unique_ptr<DeviceTensor>> tensors_;

 private:
  std::byte* slab_ = nullptr;
  uint64_t alignment_ = 1;  // of the tensors in the slab
};

}  // namespace shoal::gpu
