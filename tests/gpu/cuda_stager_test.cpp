// The CUDA back end on the fake runtime of tests/gpu/fake_cuda/, over seeds: each seed is another order of
// the streams, another shape of the copies, and other sizes of what the back end cuts by.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gpu/device_stager.h"
#include "tests/gpu/fake_cuda/fake_cuda.h"

namespace shoal::gpu {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kSlabBytes = uint64_t{1} << 18;
constexpr int kOutOfMemory = 2;     // cudaErrorMemoryAllocation
constexpr int kNotPermitted = 800;  // cudaErrorNotPermitted

// Small, so that small tensors are cut everywhere.
DeviceStagerOptions small_options(uint64_t seed) {
  std::mt19937_64 random(seed);
  DeviceStagerOptions options;
  options.streams = 1 + random() % 4;
  options.register_bytes_max = 4096 * (1 + random() % 8);
  options.small_bytes = 1 + random() % 4096;
  options.split_bytes = 4096 + random() % 16384;
  options.ring_bytes = 512 + random() % 4096;
  options.window_bytes = 512 + random() % 4096;
  options.window_parts = 1 + random() % 5;
  return options;
}

std::vector<std::byte> noise(uint64_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> out(bytes);
  for (std::byte& one : out) one = static_cast<std::byte>(random());
  return out;
}

// Memory of a device with known bytes, and the same bytes on the host.
struct Tensor {
  Tensor(Queue place, uint64_t rows_in, uint64_t row_bytes_in, uint64_t stride_in, uint64_t seed)
      : queue(place), rows(rows_in), row_bytes(row_bytes_in), stride(stride_in) {
    bytes = noise(rows * stride, seed);
    memory = static_cast<std::byte*>(fake_cuda::allocate(queue.device, bytes.size()));
  }
  ~Tensor() { fake_cuda::free(memory); }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  // A kernel of the caller on its stream writes the bytes: they are there once the stream has come to it.
  void compute() {
    fake_cuda::launch(queue.stream, [this] { fake_cuda::write(memory, bytes.data(), bytes.size()); });
  }
  // A later kernel overwrites them.
  void train() {
    fake_cuda::launch(queue.stream, [this] {
      const std::vector<std::byte> other(bytes.size(), std::byte{0x11});
      fake_cuda::write(memory, other.data(), other.size());
    });
  }
  uint64_t packed_bytes() const { return rows * row_bytes; }
  DeviceCopy to(std::byte* target) const { return {memory, target, row_bytes, rows, stride, row_bytes}; }
  std::vector<std::byte> packed() const {
    std::vector<std::byte> out;
    for (uint64_t row = 0; row < rows; ++row) {
      out.insert(out.end(), bytes.begin() + static_cast<ptrdiff_t>(row * stride),
                 bytes.begin() + static_cast<ptrdiff_t>(row * stride + row_bytes));
    }
    return out;
  }
  const Queue queue;
  const uint64_t rows, row_bytes, stride;
  std::vector<std::byte> bytes;
  std::byte* memory = nullptr;
};

// A job with two devices, three streams and a slab.
class CudaStager : public ::testing::TestWithParam<uint64_t> {
 protected:
  void begin(uint64_t seed, fake_cuda::Setup setup = {}) {
    setup.seed = seed;
    tensors_.clear();
    fake_cuda::reset(setup);
    queues_ = {{0, fake_cuda::make_stream(0)}, {0, nullptr}, {1, fake_cuda::make_stream(1)}};
    std::mt19937_64 random(seed * 31);
    for (uint64_t i = 0; i < 24; ++i) {
      const uint64_t row_bytes = 1 + random() % 700, rows = i % 3 == 0 ? 1 : 1 + random() % 12;
      const uint64_t bytes = i % 8 == 7 ? 20'000 : row_bytes;
      const uint64_t gap = random() % 3 == 0 ? 0 : random() % 100;
      tensors_.push_back(
          std::make_unique<Tensor>(queues_[i % queues_.size()], rows, bytes, bytes + gap, seed + i));
      if (tensors_.back()->packed_bytes() > 60'000) tensors_.pop_back();
    }
  }
  void TearDown() override {
    tensors_.clear();
    if (slab_ != nullptr) ::munmap(slab_, kSlabBytes);
  }
  MutableByteView slab() {
    if (slab_ == nullptr) {
      slab_ = static_cast<std::byte*>(
          ::mmap(nullptr, kSlabBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    }
    return MutableByteView(slab_, kSlabBytes);
  }
  std::vector<DeviceBatch> batches() {
    std::vector<DeviceBatch> out;
    for (const Queue& queue : queues_) out.push_back({queue, {}});
    uint64_t at = 0;
    for (const auto& tensor : tensors_) {
      for (DeviceBatch& batch : out) {
        if (batch.queue == tensor->queue) batch.copies.push_back(tensor->to(slab().data() + at));
      }
      at += (tensor->packed_bytes() + 63) / 64 * 64;
      if (at > kSlabBytes) ADD_FAILURE() << "the slab is too small for this test";
    }
    return out;
  }
  void compute() {
    for (const auto& tensor : tensors_) tensor->compute();
  }
  void train() {
    for (const auto& tensor : tensors_) tensor->train();
  }
  void expect_staged() {
    uint64_t at = 0;
    for (const auto& tensor : tensors_) {
      const std::vector<std::byte> wanted = tensor->packed();
      ASSERT_EQ(std::memcmp(slab().data() + at, wanted.data(), wanted.size()), 0)
          << wanted.size() << " bytes at " << at;
      at += (tensor->packed_bytes() + 63) / 64 * 64;
    }
  }
  static void expect_clean() {
    EXPECT_THAT(fake_cuda::misuses(), IsEmpty());
    EXPECT_THAT(fake_cuda::leaks(), IsEmpty());
  }

  std::vector<Queue> queues_;
  std::vector<std::unique_ptr<Tensor>> tensors_;
  std::byte* slab_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Seeds, CudaStager, ::testing::Range<uint64_t>(1, 41));

TEST_P(CudaStager, CopiesToAPinnedSlabAndTheHostWaits) {
  begin(GetParam());
  {
    auto stager = make_device_stager(small_options(GetParam())).value();
    auto pin = stager->pin(0, slab());
    ASSERT_TRUE(pin.ok()) << pin.status().to_string();
    for (int save = 0; save < 3; ++save) {
      compute();
      auto work = stager->to_host(batches());
      ASSERT_TRUE(work.ok()) << work.status().to_string();
      ASSERT_TRUE((*work)->wait().ok());
      train();
      expect_staged();
    }
    uint64_t payload = 0;
    for (const auto& tensor : tensors_) payload += tensor->packed_bytes();
    EXPECT_EQ(fake_cuda::bytes_copied(), 3 * payload) << "each byte crosses the bus once a save";
    EXPECT_EQ(fake_cuda::registered_bytes(), kSlabBytes);
    EXPECT_LE(fake_cuda::largest_registration(), small_options(GetParam()).register_bytes_max);
  }
  expect_clean();
}

TEST_P(CudaStager, CopiesThroughARingIfTheSlabIsNotPinned) {
  begin(GetParam());
  {
    auto stager = make_device_stager(small_options(GetParam())).value();
    compute();
    auto work = stager->to_host(batches());
    ASSERT_TRUE(work.ok()) << work.status().to_string();
    for (const Queue& queue : queues_) {
      if (queue.stream == nullptr) continue;
      ASSERT_TRUE((*work)->make_wait(queue.stream).ok());
    }
    // The default stream is not the one that the test can name on both devices.
    for (const auto& tensor : tensors_) {
      if (tensor->queue.stream != nullptr) tensor->train();
    }
    ASSERT_TRUE((*work)->wait().ok());
    expect_staged();
  }
  expect_clean();
}

TEST_P(CudaStager, TheCallersStreamsWaitForTheCopiesAndTheHostDoesNot) {
  begin(GetParam());
  {
    auto stager = make_device_stager(small_options(GetParam())).value();
    auto pin = stager->pin(1, slab());
    compute();
    auto work = stager->to_host(batches());
    ASSERT_TRUE(work.ok()) << work.status().to_string();
    for (const Queue& queue : queues_) ASSERT_TRUE((*work)->make_wait(queue.stream).ok());
    EXPECT_EQ(fake_cuda::bytes_copied(), 0u) << "the host waited";
    train();  // at once: the streams keep the order
    ASSERT_TRUE((*work)->wait().ok());
    fake_cuda::run_all();
    expect_staged();
    EXPECT_TRUE((*work)->make_wait(queues_[0].stream).ok()) << "also after the copies";
  }
  expect_clean();
}

TEST_P(CudaStager, WithoutBatchesTheDriverCopiesOneByOne) {
  fake_cuda::Setup setup;
  setup.has_batches = false;
  begin(GetParam(), setup);
  {
    auto stager = make_device_stager(small_options(GetParam())).value();
    auto pin = stager->pin(0, slab());
    compute();
    auto work = stager->to_host(batches());
    ASSERT_TRUE(work.ok()) << work.status().to_string();
    ASSERT_TRUE((*work)->wait().ok());
    expect_staged();
  }
  expect_clean();
}

TEST_P(CudaStager, AWorkAndAPinThatAreDestroyedWaitForTheirCopies) {
  begin(GetParam());
  {
    auto stager = make_device_stager(small_options(GetParam())).value();
    auto pin = stager->pin(0, slab());
    compute();
    auto work = stager->to_host(batches()).value();
    stager.reset();
    pin = Status(Code::internal, "unpinned");
    expect_staged();
  }
  expect_clean();
}

TEST_P(CudaStager, UploadsThroughABoundedWindowFromSeveralThreads) {
  begin(GetParam());
  {
    const DeviceStagerOptions options = small_options(GetParam());
    auto stager = make_device_stager(options).value();
    for (const auto& tensor : tensors_) tensor->train();  // what the load replaces
    auto upload = stager->begin_upload(queues_);
    ASSERT_TRUE(upload.ok()) << upload.status().to_string();
    auto put_every_third = [&](size_t first) {
      for (size_t i = first; i < tensors_.size(); i += 3) {
        const Tensor& tensor = *tensors_[i];
        std::vector<std::byte> source = tensor.packed();  // freed as soon as put returns
        const DeviceCopy copies[] = {
            {source.data(), tensor.memory, tensor.row_bytes, tensor.rows, tensor.row_bytes, tensor.stride}};
        EXPECT_TRUE((*upload)->put(tensor.queue, copies).ok());
        std::ranges::fill(source, std::byte{0xEE});
      }
    };
    std::vector<std::thread> threads;
    for (size_t first : {1, 2}) threads.emplace_back(put_every_third, first);
    put_every_third(0);
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE((*upload)->finish().ok());
    EXPECT_LE(fake_cuda::calls_of("cudaHostAlloc"), options.window_parts);
    for (const auto& tensor : tensors_) {
      std::vector<std::byte> all(tensor->bytes.size()), rows;
      fake_cuda::read(tensor->memory, all.data(), all.size());
      for (uint64_t row = 0; row < tensor->rows; ++row) {
        for (uint64_t i = 0; i < tensor->stride; ++i) {
          const std::byte wanted =
              i < tensor->row_bytes ? tensor->bytes[row * tensor->stride + i] : std::byte{0x11};
          ASSERT_EQ(all[row * tensor->stride + i], wanted) << "row " << row << ", byte " << i;
        }
      }
    }
  }
  expect_clean();
}

// --- errors ---

class CudaErrors : public CudaStager {
 protected:
  // Pins, saves twice and loads. The first error, if any.
  Status run(DeviceStagerOptions options) {
    Result<std::unique_ptr<DeviceStager>> stager = make_device_stager(options);
    SHOAL_RETURN_IF_ERROR(stager.status());
    // A slab that is not pinned goes through the ring.
    const Result<std::shared_ptr<void>> pin = (*stager)->pin(0, slab());
    for (const auto& tensor : tensors_) {
      SHOAL_RETURN_IF_ERROR((*stager)->check_memory(tensor->queue, tensor->memory, tensor->bytes.size()));
    }
    for (int save = 0; save < 2; ++save) {
      compute();
      SHOAL_ASSIGN_OR_RETURN(std::shared_ptr<DeviceWork> work, (*stager)->to_host(batches()));
      if (save == 1) SHOAL_RETURN_IF_ERROR(work->make_wait(queues_[0].stream));
      SHOAL_RETURN_IF_ERROR(work->wait());
      expect_staged();
    }
    SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<DeviceUpload> upload, (*stager)->begin_upload(queues_));
    for (const auto& tensor : tensors_) {
      const std::vector<std::byte> source = tensor->packed();
      const DeviceCopy copies[] = {{source.data(), tensor->memory, tensor->row_bytes, tensor->rows,
                                    tensor->row_bytes, tensor->stride}};
      SHOAL_RETURN_IF_ERROR(upload->put(tensor->queue, copies));
    }
    return upload->finish();
  }
  // Lets each call fail in turn, until a run comes to its end without a failure.
  template <class Inject>
  void fail_each_call(uint64_t seed, const fake_cuda::Setup& setup, Inject inject) {
    for (uint64_t call = 1;; ++call) {
      begin(seed, setup);
      inject(call);
      const Status status = run(small_options(seed));
      const std::string where =
          fmt::format("call {} ({}): {}", call, fake_cuda::failed_call(), status.to_string());
      EXPECT_THAT(fake_cuda::misuses(), IsEmpty()) << where;
      EXPECT_THAT(fake_cuda::leaks(), IsEmpty()) << where;
      if (!fake_cuda::has_failed()) {
        EXPECT_TRUE(status.ok()) << where;
        EXPECT_GT(call, 100u);
        return;
      }
      if (status.ok()) continue;  // it could do without the call, and the bytes are right
      EXPECT_THAT(status.to_string(), HasSubstr("cuda")) << where;
      EXPECT_THAT(status.to_string(), AnyOf(HasSubstr("device "), HasSubstr("cudaGetDeviceCount"))) << where;
      if (::testing::Test::HasFailure()) return;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Seeds, CudaErrors, ::testing::Range<uint64_t>(1, 4));

TEST_P(CudaErrors, EveryCallThatHasNoMemoryFailsByNameAndLeaksNothing) {
  fail_each_call(GetParam(), {}, [](uint64_t call) { fake_cuda::fail_at(call, kOutOfMemory); });
}

TEST_P(CudaErrors, EveryCallThatIsRefusedFailsByNameAndLeaksNothing) {
  fail_each_call(GetParam(), {}, [](uint64_t call) { fake_cuda::fail_at(call, kNotPermitted); });
}

TEST_P(CudaErrors, ADeviceThatIsLostAtAnyCallFailsByNameAndLeaksNothing) {
  fail_each_call(GetParam(), {}, [](uint64_t call) { fake_cuda::lose_device_at(call); });
}

TEST_P(CudaErrors, EveryCallMayFailWhereMemoryCannotBePinned) {
  fake_cuda::Setup setup;
  setup.pinned_bytes_max = 0;
  fail_each_call(GetParam(), setup, [](uint64_t call) { fake_cuda::fail_at(call, kOutOfMemory); });
}

using BadInput = CudaStager;
INSTANTIATE_TEST_SUITE_P(Once, BadInput, ::testing::Values(1));

TEST_P(BadInput, APointerOfNoDeviceOfAnotherDeviceOrFreedIsRejected) {
  begin(GetParam());
  auto stager = make_device_stager().value();
  int on_host = 0;
  EXPECT_THAT(stager->check_memory({0, nullptr}, &on_host, 4).to_string(),
              HasSubstr("cudaPointerGetAttributes of 4 bytes on device 0: the pointer is not one"));
  void* const memory = fake_cuda::allocate(1, 64);
  EXPECT_THAT(stager->check_memory({0, nullptr}, memory, 64).to_string(), HasSubstr("memory is on device 1"));
  EXPECT_TRUE(stager->check_memory({1, nullptr}, memory, 64).ok());
  fake_cuda::free(memory);
  EXPECT_EQ(stager->check_memory({1, nullptr}, memory, 64).code(), Code::invalid_argument);
  const std::vector<DeviceBatch> freed = {
      {{1, nullptr}, {{static_cast<std::byte*>(memory), slab().data(), 64}}}};
  EXPECT_THAT(stager->to_host(freed).status().to_string(), HasSubstr("on device 1"));
}

TEST_P(BadInput, AStreamOfAnotherDeviceAndADeviceThatIsNotThereAreRejected) {
  begin(GetParam());
  auto stager = make_device_stager().value();
  const std::vector<DeviceBatch> wrong = {{{0, fake_cuda::make_stream(1)}, {}}};
  EXPECT_THAT(stager->to_host(wrong).status().to_string(),
              HasSubstr("the caller's stream for memory of device 0: cudaEventRecord"));
  for (int device : {-1, 2}) {
    const std::vector<DeviceBatch> nowhere = {{{device, nullptr}, {}}};
    EXPECT_THAT(stager->to_host(nowhere).status().to_string(), HasSubstr("there is no device"));
  }
}

TEST_P(BadInput, WithoutADeviceOrWithAnOlderDriverThereIsNoStager) {
  fake_cuda::Setup setup;
  setup.devices = 0;
  fake_cuda::reset(setup);
  EXPECT_EQ(make_device_stager().status().code(), Code::unavailable);
  setup.driver_is_older = true;
  fake_cuda::reset(setup);
  EXPECT_THAT(make_device_stager().status().to_string(), HasSubstr("the driver is older than CUDA"));
}

TEST_P(BadInput, AForkedProcessIsRejectedAndTouchesNoDevice) {
  begin(GetParam());
  auto stager = make_device_stager().value();
  auto pin = stager->pin(0, slab()).value();
  compute();
  auto work = stager->to_host(batches()).value();
  const pid_t child = ::fork();
  if (child == 0) {
    const uint64_t before = fake_cuda::calls();
    const bool is_refused =
        stager->to_host({}).ok() == false || stager->pin(0, slab()).status().code() == Code::refused;
    const bool waits = work->wait().code() == Code::refused;
    work.reset();
    pin.reset();
    stager.reset();
    ::_exit(is_refused && waits && fake_cuda::calls() == before ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(work->wait().ok());
}

TEST_P(BadInput, ABudgetOfPinnedMemoryIsKept) {
  begin(GetParam());
  DeviceStagerOptions options;
  options.pinned_bytes_max = kSlabBytes - 1;
  auto stager = make_device_stager(options).value();
  EXPECT_THAT(stager->pin(0, slab()).status().to_string(), HasSubstr("are pinned"));
  auto half = stager->pin(0, slab().first(kSlabBytes / 2));
  EXPECT_TRUE(half.ok());
}

}  // namespace
}  // namespace shoal::gpu
