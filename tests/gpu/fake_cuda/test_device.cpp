// test_device on the fake runtime.
#include "tests/gpu/cuda/stager_job.h"
#include "tests/gpu/fake_cuda/fake_cuda.h"

namespace shoal::gpu::test_device {

std::string open(uint64_t seed) {
  fake_cuda::Setup setup;
  setup.seed = seed;
  fake_cuda::reset(setup);
  return "";
}

int count() {
  return fake_cuda::Setup().devices;
}

std::byte* allocate(int device, const std::vector<std::byte>& bytes) {
  return static_cast<std::byte*>(fake_cuda::allocate(device, bytes.size()));
}

void free(std::byte* memory) {
  fake_cuda::free(memory);
}

void* make_stream(int device) {
  return fake_cuda::make_stream(device);
}

void write_later(const Queue& queue, std::byte* memory, const std::vector<std::byte>& bytes) {
  fake_cuda::launch(queue.stream, [memory, &bytes] { fake_cuda::write(memory, bytes.data(), bytes.size()); });
}

void overwrite_later(const Queue& queue, std::byte* memory, uint64_t bytes) {
  fake_cuda::launch(queue.stream, [memory, bytes] {
    const std::vector<std::byte> other(bytes, kOverwritten);
    fake_cuda::write(memory, other.data(), other.size());
  });
}

bool change_between_digests(int device, std::byte* memory) {
  const auto n = static_cast<uint64_t>(2 * device + 2);  // the second one of this device
  fake_cuda::before_digest(n, [memory] {
    std::byte one{};
    fake_cuda::read(memory, &one, 1);
    one ^= std::byte{1};
    fake_cuda::write(memory, &one, 1);
  });
  return true;
}

void finish() {
  fake_cuda::run_all();
}

std::vector<std::byte> read(const std::byte* memory, uint64_t bytes) {
  std::vector<std::byte> out(bytes);
  fake_cuda::read(memory, out.data(), out.size());
  return out;
}

std::vector<std::string> problems() {
  std::vector<std::string> out = fake_cuda::misuses();
  for (std::string& leak : fake_cuda::leaks()) out.push_back(std::move(leak));
  return out;
}

std::optional<uint64_t> bytes_copied() {
  return fake_cuda::bytes_copied();
}

}  // namespace shoal::gpu::test_device
