// Saves and loads of memory of devices, from client through node to files and back, on the fake CUDA runtime
// of tests/gpu/fake_cuda/.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "tests/gpu/fake_cuda/fake_cuda.h"
#include "tests/process/trainer.h"

namespace shoal::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kDeviceRows = 96, kDeviceColumns = 1031;

uint32_t number_at(uint64_t i, uint64_t step) {
  return static_cast<uint32_t>(i * 2'654'435'761u + step * 97u + 1u);
}

// The elements of one tensor of this rank, on a device.
struct DeviceTensor {
  DeviceTensor(int on_device, void* on_stream, std::vector<uint64_t> global_in)
      : device(on_device), stream(on_stream), global(std::move(global_in)) {
    memory = fake_cuda::allocate(device, bytes());
  }
  ~DeviceTensor() { fake_cuda::free(memory); }
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;
  uint64_t bytes() const { return global.size() * sizeof(uint32_t); }
  MemoryRef ref() const { return MemoryRef::on_device(memory, device, stream); }
  void write_now(uint64_t step) {
    std::vector<uint32_t> numbers;
    for (const uint64_t i : global) numbers.push_back(number_at(i, step));
    fake_cuda::write(memory, numbers.data(), bytes());
  }
  // A kernel of the trainer.
  void compute(uint64_t step) {
    fake_cuda::launch(stream, [this, step] { write_now(step); });
  }
  uint64_t wrong(uint64_t step) const {
    std::vector<uint32_t> numbers(global.size());
    fake_cuda::read(memory, numbers.data(), bytes());
    uint64_t count = 0;
    for (size_t i = 0; i < global.size(); ++i) count += numbers[i] != number_at(global[i], step);
    return count;
  }
  const int device;
  void* const stream;
  const std::vector<uint64_t> global;  // the index of each element in the whole tensor
  void* memory = nullptr;
};

// "w", "b" and "rng" on the host, as every trainer has them; "rows" on device 0, "columns" on device 1, and
// 40 small tensors on the default stream of device 0.
struct DeviceTrainer : Trainer {
  DeviceTrainer(const Scratch& scratch, Rank rank_in, uint32_t world_in, const std::string& job = "job-1",
                const std::function<void(CheckpointerOptions&)>& change = nullptr)
      : Trainer(scratch, "a", rank_in, world_in, job, change) {
    const Mesh mesh = Mesh::contiguous({world});
    const Dims shape = {kDeviceRows, kDeviceColumns};
    add("rows", shape, mesh, Placement::shard(0), 0, fake_cuda::make_stream(0));
    add("columns", shape, mesh, Placement::shard(1), 1, fake_cuda::make_stream(1));
    for (int i = 0; i < 40; ++i) {
      add(fmt::format("small.{}", i), {world * 3, 5}, mesh, Placement::shard(0), 0, nullptr);
    }
  }
  void add(const std::string& fqn, const Dims& shape, const Mesh& mesh, Placement placement, int device,
           void* stream) {
    const ShardedTensor tensor{DType::u32, shape, mesh, {placement}};
    const LocalShards local = tensor.local(rank).value();
    std::vector<uint64_t> global;
    for (const Box& box : local.boxes) {
      for_each_run(box, whole(shape), [&](uint64_t, uint64_t at, uint64_t count) {
        for (uint64_t i = 0; i < count; ++i) global.push_back(at + i);
      });
    }
    tensors.push_back(std::make_unique<DeviceTensor>(device, stream, std::move(global)));
    state.add_tensor(fqn, tensor, tensors.back()->ref());
  }
  // The kernels of a step are given to the streams just before save.
  Result<SaveHandle> save(uint64_t step) {
    for (auto& tensor : tensors) tensor->compute(step);
    return Trainer::save(step);
  }
  void train() {
    for (auto& tensor : tensors) tensor->compute(999);
  }
  void forget_all() {
    forget();
    for (auto& tensor : tensors) tensor->write_now(777);
  }
  void expect_holds(uint64_t step) const {
    EXPECT_TRUE(holds(step)) << step;
    for (size_t i = 0; i < tensors.size(); ++i) EXPECT_EQ(tensors[i]->wrong(step), 0u) << i << " at " << step;
  }
  std::vector<std::unique_ptr<DeviceTensor>> tensors;
};

class DeviceMemory : public ::testing::Test {
 protected:
  void start(uint32_t world, const fake_cuda::Setup& setup = {}, StagingMode staging = StagingMode::wait,
             SaveMode mode = SaveMode::collective_free, const std::vector<std::string>& more = {}) {
    trainers_.clear();
    fake_cuda::reset(setup);
    std::vector<std::string> arguments{"root=" + scratch_.root(), "job=job-1", fmt::format("world={}", world),
                                       fmt::format("ranks_here={}", world)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    node_ = std::make_unique<NodeChild>(scratch_.host("a"), arguments);
    ASSERT_NE(node_->address(), "");
    for (Rank rank = 0; rank < world; ++rank) {
      trainers_.push_back(
          std::make_unique<DeviceTrainer>(scratch_, rank, world, "job-1", [&](CheckpointerOptions& options) {
            options.save.mode = mode;
            options.save.staging = staging;
            options.save.verify_unchanged = verify_unchanged_;
            options.ranks_on_host = world;
          }));
      ASSERT_TRUE(trainers_.back()->opened.ok()) << trainers_.back()->opened.status().to_string();
    }
  }
  // Saves a step on all ranks, lets each train on as `staging` allows, and returns the handles.
  std::vector<SaveHandle> save(uint64_t step, StagingMode staging) {
    std::vector<SaveHandle> handles;
    for (auto& saved : together(trainers_, [&](DeviceTrainer& trainer) { return trainer.save(step); })) {
      EXPECT_TRUE(saved.ok()) << saved.status().to_string();
      if (saved.ok()) handles.push_back(*saved);
    }
    if (staging == StagingMode::until) {
      for (size_t i = 0; i < handles.size(); ++i) {
        for (auto& tensor : trainers_[i]->tensors) {
          if (tensor->stream == nullptr) continue;
          EXPECT_TRUE(handles[i].wait_staged(tensor->stream).ok());
        }
        EXPECT_TRUE(handles[i].wait_staged(nullptr).ok());
      }
    }
    for (auto& trainer : trainers_) trainer->train();
    return handles;
  }
  void expect_committed(std::vector<SaveHandle>& handles) {
    for (SaveHandle& handle : handles) {
      auto committed = handle.wait_committed(kPatience);
      EXPECT_TRUE(committed.ok()) << committed.status().to_string();
      EXPECT_TRUE(handle.wait_staged().ok());
    }
  }
  void expect_loads(uint64_t step) {
    for (auto& trainer : trainers_) trainer->forget_all();
    LoadOptions options;
    options.step = step;
    for (auto& loaded :
         together(trainers_, [&](DeviceTrainer& t) { return t.checkpointer().load(t.state, options); })) {
      EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
    }
    for (auto& trainer : trainers_) trainer->expect_holds(step);
  }
  void stop() {
    fake_cuda::run_all();  // kernels name tensors of the trainers
    trainers_.clear();
    node_->signal(SIGTERM);
    EXPECT_EQ(node_->wait(), 0);
    EXPECT_THAT(fake_cuda::misuses(), IsEmpty());
    EXPECT_THAT(fake_cuda::leaks(), IsEmpty());
  }

  Scratch scratch_;
  bool verify_unchanged_ = false;
  std::unique_ptr<NodeChild> node_;
  std::vector<std::unique_ptr<DeviceTrainer>> trainers_;
};

class DeviceMemoryInMode : public DeviceMemory,
                           public ::testing::WithParamInterface<std::tuple<StagingMode, SaveMode>> {};
INSTANTIATE_TEST_SUITE_P(Ways, DeviceMemoryInMode,
                         ::testing::Combine(::testing::Values(StagingMode::wait, StagingMode::stream,
                                                              StagingMode::until),
                                            ::testing::Values(SaveMode::collective_free, SaveMode::rank_local,
                                                              SaveMode::collective)));

TEST_P(DeviceMemoryInMode, IsSavedAsItWasWhenSaveWasCalledAndLoadedBitForBit) {
  const auto [staging, mode] = GetParam();
  fake_cuda::Setup setup;
  setup.seed = 1 + static_cast<uint64_t>(staging) * 3 + static_cast<uint64_t>(mode);
  start(2, setup, staging, mode);
  for (uint64_t step = 1; step <= 4; ++step) {
    std::vector<SaveHandle> handles = save(step, staging);
    expect_committed(handles);
  }
  fake_cuda::run_all();
  for (const uint64_t step : {4, 1}) expect_loads(step);
  stop();
}

// What a trainer that forgets wait_staged would do: its kernels change a tensor while it is copied.
TEST_F(DeviceMemory, AStateThatChangesWhileItIsCopiedIsNotCommitted) {
  verify_unchanged_ = true;
  start(1, {}, StagingMode::until);
  DeviceTrainer& trainer = *trainers_.front();
  for (uint64_t step = 1; step <= 3; ++step) {
    if (step == 2) {
      fake_cuda::before_digest(2, [&trainer] { trainer.tensors.front()->write_now(999); });
    }
    auto saved = trainer.save(step);
    ASSERT_TRUE(saved.ok()) << saved.status().to_string();
    const Status staged = saved->wait_staged();
    const Status committed = saved->wait_committed().status();
    if (step == 2) {
      EXPECT_EQ(staged.code(), Code::invalid_argument);
      EXPECT_THAT(staged.to_string(), HasSubstr("'rows' changed while it was copied from device 0"));
      EXPECT_THAT(committed.to_string(), HasSubstr("'rows' changed while it was copied from device 0"));
    } else {
      EXPECT_TRUE(staged.ok()) << staged.to_string();
      EXPECT_TRUE(committed.ok()) << committed.to_string();
    }
  }
}

TEST_F(DeviceMemory, WithoutReadingFilesIsLoadedThroughTheWindowOfTheNode) {
  start(1);
  std::vector<SaveHandle> handles = save(1, StagingMode::wait);
  expect_committed(handles);
  fake_cuda::run_all();
  trainers_.clear();
  trainers_.push_back(std::make_unique<DeviceTrainer>(
      scratch_, 0, 1, "job-1", [](CheckpointerOptions& options) { options.load_threads = 0; }));
  ASSERT_TRUE(trainers_.back()->opened.ok());
  expect_loads(1);
  stop();
}

TEST_F(DeviceMemory, ThatCannotBePinnedIsSavedThroughTheRing) {
  fake_cuda::Setup setup;
  setup.pinned_bytes_max = 0;
  start(1, setup, StagingMode::stream);
  for (uint64_t step = 1; step <= 3; ++step) {
    std::vector<SaveHandle> handles = save(step, StagingMode::stream);
    expect_committed(handles);
  }
  EXPECT_EQ(fake_cuda::registered_bytes(), 0u);
  fake_cuda::run_all();
  expect_loads(3);
  stop();
}

TEST_F(DeviceMemory, KeepsItsSlabsPinnedAndPinsNoMore) {
  start(1, {}, StagingMode::stream);
  ASSERT_TRUE(trainers_[0]->checkpointer().prepare(trainers_[0]->state).ok());
  const uint64_t pinned = fake_cuda::registered_bytes(), calls = fake_cuda::calls_of("cudaHostRegister");
  EXPECT_GT(pinned, 0u);
  for (uint64_t step = 1; step <= 30; ++step) {
    std::vector<SaveHandle> handles = save(step, StagingMode::stream);
    expect_committed(handles);
    EXPECT_EQ(fake_cuda::registered_bytes(), pinned) << step;
  }
  EXPECT_EQ(fake_cuda::calls_of("cudaHostRegister"), calls);
  stop();
}

TEST_F(DeviceMemory, MayGrowWithItsLayoutBetweenSaves) {
  start(1, {}, StagingMode::until);
  for (uint64_t step = 1; step <= 3; ++step) {
    std::vector<SaveHandle> handles = save(step, StagingMode::until);
    expect_committed(handles);
    trainers_[0]->add(fmt::format("more.{}", step), {2000, 1000 * step}, Mesh::contiguous({1}),
                      Placement::shard(0), 1, fake_cuda::make_stream(1));
  }
  std::vector<SaveHandle> handles = save(4, StagingMode::until);
  expect_committed(handles);
  fake_cuda::run_all();
  expect_loads(4);
  stop();
}

TEST_F(DeviceMemory, ThatTheHostCannotHoldIsSavedInParts) {
  start(1, {}, StagingMode::until, SaveMode::collective_free, {"staging_memory=67108864"});
  trainers_[0]->add("large", {17'000, 1'000}, Mesh::contiguous({1}), Placement::shard(0), 1,
                    fake_cuda::make_stream(1));
  for (uint64_t step = 1; step <= 2; ++step) {
    std::vector<SaveHandle> handles = save(step, StagingMode::wait);
    ASSERT_EQ(handles.size(), 1u);
    EXPECT_GT(handles[0].stats().parts, 0u);
    expect_committed(handles);
  }
  fake_cuda::run_all();
  expect_loads(2);
  stop();
}

// --- errors ---

class LostDevice : public DeviceMemory, public ::testing::WithParamInterface<StagingMode> {};
INSTANTIATE_TEST_SUITE_P(Ways, LostDevice,
                         ::testing::Values(StagingMode::wait, StagingMode::stream, StagingMode::until));

TEST_P(LostDevice, AbortsTheSaveOfAllRanksAndNamesThisOne) {
  const StagingMode staging = GetParam();
  start(2, {}, staging);
  std::vector<SaveHandle> first = save(1, staging);
  expect_committed(first);
  // The device of rank 1 is lost while the copies wait for a kernel; rank 0 saves host memory.
  StateDict host_only;
  DeviceTrainer& healthy = *trainers_[0];
  DeviceTrainer& broken = *trainers_[1];
  Result<SaveHandle> lost = Status(Code::internal, "not saved");
  fake_cuda::launch(broken.tensors[0]->stream, [] { fake_cuda::lose_device_now(); });
  lost = broken.save(2);
  if (staging == StagingMode::wait) {
    ASSERT_FALSE(lost.ok());
    EXPECT_THAT(lost.status().to_string(), HasSubstr("cuda"));
  } else {
    ASSERT_TRUE(lost.ok()) << lost.status().to_string();
    EXPECT_THAT(lost->wait_staged().to_string(), HasSubstr("cudaEventSynchronize of "));
    const auto outcome = lost->wait_committed(kPatience);
    EXPECT_THAT(outcome.status().to_string(), HasSubstr("rank 1"));
    EXPECT_THAT(outcome.status().to_string(), HasSubstr("device "));
  }
  // The other rank and the node go on.
  const Mesh mesh = Mesh::contiguous({2});
  host_only.add_tensor("w", DType::f32, {kRows, kColumns}, mesh, {Placement::shard(0)}, healthy.w.data());
  auto other = healthy.checkpointer().save(2, host_only);
  ASSERT_TRUE(other.ok()) << other.status().to_string();
  const auto outcome = other->wait_committed(kPatience);
  EXPECT_EQ(outcome.status().code(), Code::aborted);
  EXPECT_THAT(outcome.status().to_string(), HasSubstr("rank 1"));
  trainers_.clear();
  EXPECT_THAT(fake_cuda::misuses(), IsEmpty());
  EXPECT_THAT(fake_cuda::leaks(), IsEmpty());
  node_->signal(SIGTERM);
  EXPECT_EQ(node_->wait(), 0);
}

TEST_F(DeviceMemory, ThatIsFreedOrOfAnotherDeviceFailsTheSaveByName) {
  start(1);
  DeviceTrainer& trainer = *trainers_[0];
  StateDict wrong;
  const ShardedTensor tensor{DType::u32, {4}, Mesh::contiguous({1}), {Placement::replicate()}};
  void* const memory = fake_cuda::allocate(1, 16);
  wrong.add_tensor("wrong", tensor, MemoryRef::on_device(memory, 0, nullptr));
  EXPECT_THAT(
      trainer.checkpointer().save(1, wrong).status().to_string(),
      HasSubstr("'wrong': cudaPointerGetAttributes of 16 bytes on device 0: the memory is on device 1"));
  StateDict freed;
  freed.add_tensor("freed", tensor, MemoryRef::on_device(memory, 1, nullptr));
  fake_cuda::free(memory);
  EXPECT_THAT(
      trainer.checkpointer().save(2, freed).status().to_string(),
      AnyOf(HasSubstr("'freed': cudaPointerGetAttributes of 16 bytes on device 1"), HasSubstr("earlier")));
  trainers_[0]->opened = Status(Code::internal, "closed");
  stop();
}

TEST_F(DeviceMemory, ADeviceThatIsLostInALoadFailsItAndLeavesTheNodeUnharmed) {
  start(1);
  std::vector<SaveHandle> handles = save(1, StagingMode::wait);
  expect_committed(handles);
  fake_cuda::run_all();
  trainers_[0]->forget_all();
  fake_cuda::lose_device_at(20);
  const auto loaded = trainers_[0]->checkpointer().load(trainers_[0]->state);
  EXPECT_THAT(loaded.status().to_string(), HasSubstr("cuda"));
  stop();
}

}  // namespace
}  // namespace shoal::testing
