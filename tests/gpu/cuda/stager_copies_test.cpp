// Copies of the CUDA back end, on the fake runtime and on a real device (tests/gpu/cuda/stager_job.h).
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "tests/gpu/cuda/stager_job.h"

namespace shoal::gpu {
namespace {

using ::testing::HasSubstr;

class StagerCopies : public StagerJob {
 protected:
  void SetUp() override {
    if (const std::string reason = test_device::open(GetParam()); !reason.empty()) GTEST_SKIP() << reason;
    make_tensors(GetParam());
  }
  void expect_crossed_once(uint64_t saves) const {
    uint64_t payload = 0;
    for (const auto& tensor : tensors_) payload += tensor->packed_bytes();
    EXPECT_EQ(test_device::bytes_copied().value_or(saves * payload), saves * payload);
  }
};

INSTANTIATE_TEST_SUITE_P(Seeds, StagerCopies, ::testing::Range<uint64_t>(1, 41));

TEST_P(StagerCopies, TheHostWaitsForCopiesToAPinnedSlab) {
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
    expect_crossed_once(3);
  }
  expect_clean();
}

TEST_P(StagerCopies, ASlabThatIsNotPinnedIsFilledThroughARing) {
  {
    auto stager = make_device_stager(small_options(GetParam())).value();
    compute();
    auto work = stager->to_host(batches());
    ASSERT_TRUE(work.ok()) << work.status().to_string();
    for (const Queue& queue : queues_) {
      ASSERT_TRUE((*work)->make_wait(queue.stream, queue.device).ok());
    }
    train();
    ASSERT_TRUE((*work)->wait().ok());
    expect_staged();
  }
  test_device::finish();
  expect_clean();
}

TEST_P(StagerCopies, TheCallersStreamsWaitForTheCopiesAndTheHostDoesNot) {
  {
    auto stager = make_device_stager(small_options(GetParam())).value();
    auto pin = stager->pin(queues_.back().device, slab());
    compute();
    auto work = stager->to_host(batches());
    ASSERT_TRUE(work.ok()) << work.status().to_string();
    for (const Queue& queue : queues_) {
      ASSERT_TRUE((*work)->make_wait(queue.stream, queue.device).ok());
    }
    EXPECT_EQ(test_device::bytes_copied().value_or(0), 0u) << "the host waited";
    train();  // at once: the streams keep the order
    ASSERT_TRUE((*work)->wait().ok());
    test_device::finish();
    expect_staged();
    EXPECT_TRUE((*work)->make_wait(queues_[0].stream).ok()) << "also after the copies";
  }
  expect_clean();
}

TEST_P(StagerCopies, AWorkAndAPinThatAreDestroyedWaitForTheirCopies) {
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

TEST_P(StagerCopies, WhatChangesWhileItIsCopiedIsFoundAndNamed) {
  auto stager = make_device_stager(small_options(GetParam())).value();
  auto pin = stager->pin(0, slab());
  for (uint32_t round = 0; round < 3; ++round) {
    compute();
    std::vector<DeviceBatch> copies = batches();
    uint32_t tag = 0;
    for (DeviceBatch& batch : copies) {
      for (DeviceCopy& copy : batch.copies) copy.tag = ++tag;
    }
    const DeviceCopy* torn = nullptr;
    if (round == 1) {
      const DeviceBatch& batch = copies[GetParam() % copies.size()];
      const DeviceCopy& any = batch.copies[GetParam() % batch.copies.size()];
      auto* const memory = const_cast<std::byte*>(any.source);
      if (test_device::change_between_digests(batch.queue.device, memory)) torn = &any;
    }
    auto work = stager->to_host(copies, [](uint32_t n) { return "tensor " + std::to_string(n); }).value();
    const Status outcome = work->wait();
    if (torn == nullptr) {
      EXPECT_TRUE(outcome.ok()) << outcome.to_string();
      expect_staged();
    } else {
      EXPECT_THAT(outcome.to_string(), HasSubstr("tensor " + std::to_string(torn->tag) +
                                                 " changed while it was copied from device"));
    }
    work.reset();
    train();
  }
  test_device::finish();
}

TEST_P(StagerCopies, AnUploadPassesThroughItsWindowFromSeveralThreads) {
  {
    auto stager = make_device_stager(small_options(GetParam())).value();
    train();  // what the load replaces
    auto upload = stager->begin_upload(queues_);
    ASSERT_TRUE(upload.ok()) << upload.status().to_string();
    auto put_every_third = [&](size_t first) {
      for (size_t i = first; i < tensors_.size(); i += 3) {
        std::vector<std::byte> source = tensors_[i]->packed();  // it changes as soon as put returns
        const DeviceCopy copies[] = {tensors_[i]->from(source.data())};
        EXPECT_TRUE((*upload)->put(tensors_[i]->queue, copies).ok());
        std::ranges::fill(source, std::byte{0xEE});
      }
    };
    std::vector<std::thread> threads;
    for (size_t first : {1, 2}) threads.emplace_back(put_every_third, first);
    put_every_third(0);
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE((*upload)->finish().ok());
    expect_loaded();
  }
  expect_clean();
}

using StagerRefusals = StagerCopies;
INSTANTIATE_TEST_SUITE_P(Once, StagerRefusals, ::testing::Values(1));

TEST_P(StagerRefusals, APointerOfNoDeviceOrToFreedMemory) {
  auto stager = make_device_stager().value();
  int on_host = 0;
  EXPECT_THAT(stager->check_memory({0, nullptr}, &on_host, 4).to_string(),
              HasSubstr("cudaPointerGetAttributes of 4 bytes on device 0: the pointer is not one"));
  std::byte* const memory = test_device::allocate(0, std::vector<std::byte>(64));
  EXPECT_TRUE(stager->check_memory({0, nullptr}, memory, 64).ok());
  test_device::free(memory);
  EXPECT_EQ(stager->check_memory({0, nullptr}, memory, 64).code(), Code::invalid_argument);
  const std::vector<DeviceBatch> freed = {{{0, nullptr}, {{memory, slab().data(), 64}}}};
  EXPECT_THAT(stager->to_host(freed).status().to_string(), HasSubstr("on device 0"));
}

TEST_P(StagerRefusals, ADeviceThatIsNotThere) {
  auto stager = make_device_stager().value();
  for (int device : {-1, test_device::count()}) {
    const std::vector<DeviceBatch> nowhere = {{{device, nullptr}, {}}};
    EXPECT_THAT(stager->to_host(nowhere).status().to_string(), HasSubstr("there is no device"));
  }
}

TEST_P(StagerRefusals, AProcessThatWasForked) {
  auto stager = make_device_stager().value();
  auto pin = stager->pin(0, slab()).value();
  compute();
  auto work = stager->to_host(batches()).value();
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_refused = stager->to_host({}).status().code() == Code::refused &&
                            stager->pin(0, slab()).status().code() == Code::refused &&
                            work->wait().code() == Code::refused;
    work.reset();
    pin.reset();
    stager.reset();
    ::_exit(is_refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(work->wait().ok());
  expect_staged();
}

}  // namespace
}  // namespace shoal::gpu
