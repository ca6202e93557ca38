// What only the fake runtime of tests/gpu/fake_cuda/ shows of the CUDA back end: errors of every call, older
// drivers, several devices, and what is registered. Each seed is another order of the streams, another shape
// of the copies, and other sizes of what the back end cuts by.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/cuda/stager_job.h"
#include "tests/gpu/fake_cuda/fake_cuda.h"

namespace shoal::gpu {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kOutOfMemory = 2;     // cudaErrorMemoryAllocation
constexpr int kNotPermitted = 800;  // cudaErrorNotPermitted

// The parameter draws the order of the streams too.
class CudaStager : public StagerJob {
 protected:
  void begin(uint64_t seed, fake_cuda::Setup setup = {}) {
    setup.seed = seed;
    tensors_.clear();
    fake_cuda::reset(setup);
    make_tensors(seed);
  }
};

INSTANTIATE_TEST_SUITE_P(Seeds, CudaStager, ::testing::Range<uint64_t>(1, 41));

TEST_P(CudaStager, ASlabIsRegisteredInPartsOnceForAllSaves) {
  begin(GetParam());
  {
    auto stager = make_device_stager(small_options(GetParam())).value();
    auto pin = stager->pin(0, slab());
    for (int save = 0; save < 3; ++save) {
      compute();
      ASSERT_TRUE(stager->to_host(batches()).value()->wait().ok());
      EXPECT_EQ(fake_cuda::registered_bytes(), kSlabBytes);
    }
    EXPECT_LE(fake_cuda::largest_registration(), small_options(GetParam()).register_bytes_max);
  }
  EXPECT_EQ(fake_cuda::registered_bytes(), 0u);
}

// Also in a copy that a kernel packs, each byte crosses the bus once, and what is not a neighbour is not
// packed.
TEST_P(CudaStager, SmallNeighboursArePacked) {
  begin(GetParam());
  {
    DeviceStagerOptions options = small_options(GetParam());
    options.small_bytes = options.packed_bytes = uint64_t{1} << 20;
    options.register_bytes_max = kSlabBytes;
    auto stager = make_device_stager(options).value();
    auto pin = stager->pin(0, slab());
    constexpr uint64_t kRow = 48, kRows = 200;
    DeviceTensor tensor(queues_[0], kRows, kRow, 64, 7);
    tensor.compute();
    DeviceBatch batch{queues_[0], {}};
    for (uint64_t row = 0; row < kRows; ++row) {
      const uint64_t gap = row < kRows / 2 ? 0 : 16 * row;  // the second half has no neighbours
      batch.copies.push_back({tensor.memory + row * 64, slab().data() + row * kRow + gap, kRow});
    }
    const std::vector<DeviceBatch> batches = {batch};
    ASSERT_TRUE(stager->to_host(batches).value()->wait().ok());
    for (uint64_t row = 0; row < kRows; ++row) {
      EXPECT_EQ(std::memcmp(batch.copies[row].target, tensor.bytes.data() + row * 64, kRow), 0) << row;
    }
    EXPECT_EQ(fake_cuda::calls_of("cudaLaunchKernel"), 2u);
    EXPECT_EQ(fake_cuda::calls_of("cudaMemcpyAsync"), 1u);
    EXPECT_EQ(fake_cuda::calls_of("cudaMemcpyBatchAsync"), 1u);
    EXPECT_EQ(fake_cuda::bytes_copied(), kRows * kRow);
  }
  expect_clean();
}

TEST_P(CudaStager, AnUploadAllocatesItsWindowAlone) {
  begin(GetParam());
  const DeviceStagerOptions options = small_options(GetParam());
  auto stager = make_device_stager(options).value();
  auto upload = stager->begin_upload(queues_).value();
  for (const auto& tensor : tensors_) {
    const std::vector<std::byte> source = tensor->packed();
    const DeviceCopy copies[] = {tensor->from(source.data())};
    ASSERT_TRUE(upload->put(tensor->queue, copies).ok());
  }
  ASSERT_TRUE(upload->finish().ok());
  EXPECT_LE(fake_cuda::calls_of("cudaHostAlloc"), options.window_parts);
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
      NameOfTag name_of;
      if (save == 1) name_of = [](uint32_t) { return std::string("a tensor"); };
      SHOAL_ASSIGN_OR_RETURN(std::shared_ptr<DeviceWork> work, (*stager)->to_host(batches(), name_of));
      if (save == 1) SHOAL_RETURN_IF_ERROR(work->make_wait(queues_[0].stream));
      SHOAL_RETURN_IF_ERROR(work->wait());
      expect_staged();
    }
    SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<DeviceUpload> upload, (*stager)->begin_upload(queues_));
    for (const auto& tensor : tensors_) {
      const std::vector<std::byte> source = tensor->packed();
      const DeviceCopy copies[] = {tensor->from(source.data())};
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
          "call " + std::to_string(call) + " (" + fake_cuda::failed_call() + "): " + status.to_string();
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
