// Hosts without memory for a second copy of the state: two ranks of 100 MiB each, with clients, nodes and
// files; loaded bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "tests/process/trainer.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kBigRows = 13'000, kBigColumns = 4'000;  // of floats; 104 MB on each of two ranks
constexpr uint64_t kBigBytes = kBigRows * kBigColumns / 2 * sizeof(float);

uint32_t big_at(uint64_t i, uint64_t step) {
  return static_cast<uint32_t>(i * 2'654'435'761u + step * 40'503u);
}

// "big" sharded by rows, "columns" by columns, whose runs in memory are short.
struct BigTrainer : Trainer {
  BigTrainer(const Scratch& scratch, Rank rank_in, uint32_t world_in, const std::string& job = "job-1",
             const std::function<void(CheckpointerOptions&)>& change = nullptr)
      : Trainer(scratch, "a", rank_in, world_in, job, change) {
    big.resize(kBigRows / world * kBigColumns);
    state.add_tensor("big", DType::u32, {kBigRows, kBigColumns}, Mesh::contiguous({world}),
                     {Placement::shard(0)}, big.data());
  }
  void add_columns() {
    columns.resize(kColumnRows * (kBigColumns / world));
    state.add_tensor("columns", DType::u32, {kColumnRows, kBigColumns}, Mesh::contiguous({world}),
                     {Placement::shard(1)}, columns.data());
  }
  uint64_t column_at(uint64_t i) const {
    const uint64_t wide = kBigColumns / world;
    return i / wide * kBigColumns + rank * wide + i % wide;
  }
  Result<SaveHandle> save(uint64_t step) {
    for (uint64_t i = 0; i < big.size(); ++i) big[i] = big_at(rank * big.size() + i, step);
    for (uint64_t i = 0; i < columns.size(); ++i) columns[i] = big_at(column_at(i) + 5, step);
    return Trainer::save(step);
  }
  bool holds_all(uint64_t step) const {
    for (uint64_t i = 0; i < big.size(); ++i) {
      if (big[i] != big_at(rank * big.size() + i, step)) return false;
    }
    for (uint64_t i = 0; i < columns.size(); ++i) {
      if (columns[i] != big_at(column_at(i) + 5, step)) return false;
    }
    return holds(step);
  }
  static constexpr uint64_t kColumnRows = 500;
  std::vector<uint32_t> big, columns;
};

class ShortOfMemory : public ::testing::Test {
 protected:
  void start(uint64_t staging_memory, SaveMode mode = SaveMode::collective_free,
             const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"root=" + scratch_.root(), "job=job-1", "world=2", "ranks_here=2",
                                       "staging_memory=" + std::to_string(staging_memory)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    node_ = std::make_unique<NodeChild>(scratch_.host("a"), arguments);
    ASSERT_NE(node_->address(), "");
    mode_ = mode;
    for (Rank rank : {0u, 1u}) {
      trainers_.push_back(std::make_unique<BigTrainer>(
          scratch_, rank, 2, "job-1", [&](CheckpointerOptions& options) { options.save.mode = mode; }));
      ASSERT_TRUE(trainers_.back()->opened.ok()) << trainers_.back()->opened.status().to_string();
    }
  }
  std::vector<SaveStats> save_and_commit(uint64_t step) {
    std::vector<SaveStats> stats;
    auto saves = together(trainers_, [&](BigTrainer& trainer) { return trainer.save(step); });
    for (auto& saved : saves) {
      EXPECT_TRUE(saved.ok()) << step << ": " << saved.status().to_string();
      if (!saved.ok()) continue;
      auto committed = saved->wait_committed(kPatience);
      EXPECT_TRUE(committed.ok()) << step << ": " << committed.status().to_string();
      if (committed.ok()) {
        EXPECT_EQ(committed->user, trainers_.front()->attributes.metadata);
      }
      stats.push_back(saved->stats());
    }
    return stats;
  }
  void stop() {
    trainers_.clear();
    node_->signal(SIGTERM);
    EXPECT_EQ(node_->wait(), 0);
  }
  // By another job of one rank, which has memory enough.
  void expect_loads(uint64_t step, bool with_columns) {
    NodeChild node(scratch_.host("b"), {"root=" + scratch_.root(), "job=reads", "world=1"});
    ASSERT_NE(node.address(), "");
    setenv("SHOAL_RUNTIME_DIR", scratch_.host("b").c_str(), 1);
    CheckpointerOptions options;
    options.root = scratch_.root();
    options.job_id = "reads";
    options.start_node = false;
    auto reader = Checkpointer::open(options);
    ASSERT_TRUE(reader.ok()) << reader.status().to_string();
    std::vector<uint32_t> big(kBigRows * kBigColumns), columns(BigTrainer::kColumnRows * kBigColumns);
    StateDict state;
    state.add_tensor_boxes("big", DType::u32, {kBigRows, kBigColumns},
                           {{Box{{0, 0}, {kBigRows, kBigColumns}}, big.data()}});
    if (with_columns) {
      state.add_tensor_boxes("columns", DType::u32, {BigTrainer::kColumnRows, kBigColumns},
                             {{Box{{0, 0}, {BigTrainer::kColumnRows, kBigColumns}}, columns.data()}});
    }
    LoadOptions load;
    load.step = step;
    const auto loaded = (*reader)->load(state, load);
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    size_t wrong = 0;
    for (uint64_t i = 0; i < big.size(); ++i) wrong += big[i] != big_at(i, step);
    for (uint64_t i = 0; with_columns && i < columns.size(); ++i) wrong += columns[i] != big_at(i + 5, step);
    EXPECT_EQ(wrong, 0u) << step;
  }

  Scratch scratch_;
  SaveMode mode_ = SaveMode::collective_free;
  std::unique_ptr<NodeChild> node_;
  std::vector<std::unique_ptr<BigTrainer>> trainers_;
};

class ShortOfMemoryInMode : public ShortOfMemory, public ::testing::WithParamInterface<SaveMode> {};
INSTANTIATE_TEST_SUITE_P(Modes, ShortOfMemoryInMode,
                         ::testing::Values(SaveMode::collective_free, SaveMode::rank_local,
                                           SaveMode::collective),
                         [](const auto& mode) { return mode_test_name(mode); });

// The first save, without a known plan; further ones; and a layout that changes.
TEST_P(ShortOfMemoryInMode, SavesInPartsThroughSixtyFourMebibytes) {
  start(64 * kMiB, GetParam());
  for (uint64_t step : {1, 2}) {
    for (auto& trainer : trainers_) trainer->attributes.metadata["step"] = std::to_string(step);
    for (const SaveStats& stats : save_and_commit(step)) {
      EXPECT_GE(stats.parts, kBigBytes / (32 * kMiB));
      EXPECT_GE(stats.bytes_staged, kBigBytes);
    }
  }
  for (auto& trainer : trainers_) trainer->add_columns();
  for (uint64_t step : {3, 4}) {
    for (const SaveStats& stats : save_and_commit(step)) EXPECT_GT(stats.parts, 0u);
  }
  stop();
  expect_loads(2, false);
  expect_loads(4, true);
}

// One save of both fits, two do not: the second waits for the first, on each rank.
TEST_F(ShortOfMemory, KeepsOneSaveInFlightWhereTwoDoNotFit) {
  start(290 * kMiB);
  std::vector<SaveHandle> saves;
  for (uint64_t step = 1; step <= 4; ++step) {
    for (auto& saved : together(trainers_, [&](BigTrainer& trainer) { return trainer.save(step); })) {
      ASSERT_TRUE(saved.ok()) << step << ": " << saved.status().to_string();
      EXPECT_EQ(saved->stats().parts, 0u);
      EXPECT_EQ(saved->stats().in_flight_max, 1u);
      saves.push_back(*saved);
    }
  }
  for (SaveHandle& save : saves) {
    const auto committed = save.wait_committed(kPatience);
    EXPECT_TRUE(committed.ok()) << committed.status().to_string();
  }
  stop();
  expect_loads(4, false);
}

TEST_F(ShortOfMemory, SaysWhatItNeedsWhereThereIsLess) {
  start(62 * kMiB);
  for (auto& saved : together(trainers_, [](BigTrainer& trainer) { return trainer.save(1); })) {
    EXPECT_EQ(saved.status().code(), Code::no_space);
    EXPECT_THAT(saved.status().message(), HasSubstr("--staging-memory is 62.0 MiB"));
    EXPECT_THAT(saved.status().message(), HasSubstr("at least 32.0 MiB to stage in parts"));
  }
}

// One rank's file is written, the other's is not: both trainers are still in save, and stage all of it again.
TEST_F(ShortOfMemory, BeginsAgainWithTheNodeThatComesAfterOneThatDied) {
  start(64 * kMiB, SaveMode::collective_free, {"die_at=WriteShard:after:3"});
  save_and_commit(1);
  auto saving = std::async(std::launch::async, [&] { return save_and_commit(2); });
  EXPECT_EQ(node_->wait(), 128 + SIGKILL);
  node_ = std::make_unique<NodeChild>(
      scratch_.host("a"),
      std::vector<std::string>{"root=" + scratch_.root(), "job=job-1", "world=2", "ranks_here=2", "rejoin=1",
                               "staging_memory=" + std::to_string(64 * kMiB)});
  ASSERT_NE(node_->address(), "");
  for (const SaveStats& stats : saving.get()) EXPECT_GT(stats.parts, 0u);
  save_and_commit(3);
  stop();
  expect_loads(2, false);
  expect_loads(3, false);
}

}  // namespace
}  // namespace shoal::testing
