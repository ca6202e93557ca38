// KernelRunner: where a test runs kernels. The tests have it as a parameter: the emulator on the host, or the
// first device of this machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpu/kernels/tables.h"

namespace shoal::gpu {

// Memory that kernels can address, freed with the object. The host reads and writes it by copies only.
class KernelMemory {
 public:
  virtual ~KernelMemory() = default;
  virtual std::byte* address() = 0;  // at a multiple of 256
  virtual void write(const std::vector<std::byte>& bytes) = 0;
  virtual std::vector<std::byte> read() = 0;
};

// Each run_* returns when the kernels are done; an error fails the test.
class KernelRunner {
 public:
  virtual ~KernelRunner() = default;
  // The emulator's memory ends exactly after `bytes` bytes, so that the address sanitizer sees what is
  // beyond.
  virtual std::unique_ptr<KernelMemory> allocate(size_t bytes) = 0;
  virtual void run_row_copies(const std::vector<RowCopy>& pieces) = 0;
  virtual std::vector<uint64_t> run_digests(const std::vector<DigestPiece>& pieces) = 0;
  virtual void run_conversions(const std::vector<ConversionPiece>& pieces) = 0;
};

enum class RunsOn { emulator, device };
std::string name_of(RunsOn where);

std::unique_ptr<KernelRunner> make_emulator_runner(uint64_t seed);
// Null with a reason: this build has no CUDA, or this machine no device that it can use.
std::unique_ptr<KernelRunner> make_device_runner(std::string* reason);

// A runner for the parameter of a test. Skips the test if it is null.
std::unique_ptr<KernelRunner> make_runner(RunsOn where, std::string* reason);

std::vector<std::byte> random_bytes(size_t bytes, uint64_t seed);

}  // namespace shoal::gpu
