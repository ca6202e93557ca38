#include "tests/gpu/kernels/kernel_runner.h"

#include <gtest/gtest.h>

#include <random>

#include "gpu/kernels/emulate.h"

namespace shoal::gpu {

namespace {

class HostMemory final : public KernelMemory {
 public:
  static constexpr std::align_val_t kAlignment{256};

  explicit HostMemory(size_t bytes)
      : bytes_(bytes), address_(static_cast<std::byte*>(::operator new(bytes, kAlignment))) {}
  ~HostMemory() override { ::operator delete(address_, kAlignment); }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  std::byte* address() override { return address_; }
  void write(const std::vector<std::byte>& bytes) override {
    ASSERT_LE(bytes.size(), bytes_);
    std::copy(bytes.begin(), bytes.end(), address_);
  }
  std::vector<std::byte> read() override { return {address_, address_ + bytes_}; }

 private:
  size_t bytes_;
  std::byte* address_;
};

class EmulatorRunner final : public KernelRunner {
 public:
  explicit EmulatorRunner(uint64_t seed) : seed_(seed) {}

  std::unique_ptr<KernelMemory> allocate(size_t bytes) override {
    return std::make_unique<HostMemory>(bytes);
  }
  void run_row_copies(const std::vector<RowCopy>& pieces) override {
    emulate_row_copies(table_of(pieces), ++seed_);
  }
  std::vector<uint64_t> run_digests(const std::vector<DigestPiece>& pieces) override {
    const DigestTable table = table_of(pieces);
    std::vector<uint64_t> leaf_hashes(table.leaves);
    std::vector<uint64_t> digests(table.blocks);
    emulate_digests(table, leaf_hashes.data(), digests.data(), ++seed_);
    return digests;
  }
  void run_conversions(const std::vector<ConversionPiece>& pieces) override {
    emulate_conversions(table_of(pieces), ++seed_);
  }

 private:
  uint64_t seed_;
};

}  // namespace

std::string name_of(RunsOn where) {
  return where == RunsOn::emulator ? "Emulator" : "Device";
}

std::unique_ptr<KernelRunner> make_emulator_runner(uint64_t seed) {
  return std::make_unique<EmulatorRunner>(seed);
}

std::unique_ptr<KernelRunner> make_runner(RunsOn where, std::string* reason) {
  return where == RunsOn::emulator ? make_emulator_runner(1) : make_device_runner(reason);
}

std::vector<std::byte> random_bytes(size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> out(bytes);
  for (std::byte& one : out) one = static_cast<std::byte>(random());
  return out;
}

}  // namespace shoal::gpu
