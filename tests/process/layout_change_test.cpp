// Tensors that are added and removed while a job runs, through clients, nodes and files; loaded by other
// ranks, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "tests/process/trainer.h"

namespace shoal::testing {
namespace {

constexpr uint64_t kMomentumRows = 8, kMomentumColumns = 32;

float momentum_at(uint64_t i, uint64_t step) {
  return 0.5f + static_cast<float>(i) * 3.0f + static_cast<float>(step) * 1'000.0f;
}

// A trainer whose optimizer makes state as it goes: "w.momentum" sharded by columns over all ranks, and
// "scale", which one rank alone has.
struct ChangingTrainer : Trainer {
  using Trainer::Trainer;
  uint64_t columns() const { return kMomentumColumns / world; }
  void add_momentum() {
    momentum.resize(kMomentumRows * columns());
    state.add_tensor("w.momentum", DType::f32, {kMomentumRows, kMomentumColumns}, Mesh::contiguous({world}),
                     {Placement::shard(1)}, momentum.data());
  }
  void add_scale() {
    scale.resize(3);
    state.add_value("scale", DType::f32, {3}, scale.data(), Mesh::single(rank));
  }
  uint64_t global(uint64_t i) const {
    return i / columns() * kMomentumColumns + rank * columns() + i % columns();
  }
  Result<SaveHandle> save(uint64_t step) {
    for (uint64_t i = 0; i < momentum.size(); ++i) momentum[i] = momentum_at(global(i), step);
    for (uint64_t i = 0; i < scale.size(); ++i) scale[i] = momentum_at(i + 7, step);
    return Trainer::save(step);
  }
  bool holds_all(uint64_t step) const {
    for (uint64_t i = 0; i < momentum.size(); ++i) {
      if (momentum[i] != momentum_at(global(i), step)) return false;
    }
    for (uint64_t i = 0; i < scale.size(); ++i) {
      if (scale[i] != momentum_at(i + 7, step)) return false;
    }
    return holds(step);
  }
  std::vector<float> momentum, scale;
};

class AChangingJob : public ::testing::Test {
 protected:
  void start_trainers() {
    for (Rank rank = 0; rank < 4; ++rank) {
      trainers_.push_back(std::make_unique<ChangingTrainer>(scratch_, rank < 2 ? "a" : "b", rank, 4));
      ASSERT_TRUE(trainers_.back()->opened.ok()) << trainers_.back()->opened.status().to_string();
    }
  }
  void save_and_commit(uint64_t step) { testing::save_and_commit(trainers_, step); }
  // By another job, on another number of ranks. `scale`: whether it was saved too.
  void expect_loads(uint64_t step, bool momentum, bool scale, size_t ranks_saved = 4) {
    const std::string job = fmt::format("loads-{}", step), host = job;
    NodeChild node(scratch_.host(host), {"root=" + scratch_.root(), "job=" + job, "world=2"});
    ASSERT_NE(node.address(), "");
    for (Rank rank : {0u, 1u}) {
      ChangingTrainer reader(scratch_, host, rank, 2, job);
      ASSERT_TRUE(reader.opened.ok()) << reader.opened.status().to_string();
      if (momentum) reader.add_momentum();
      if (scale) reader.add_scale();
      reader.rng = "";
      auto loaded = reader.checkpointer().load(reader.state, {.step = step});
      ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
      EXPECT_TRUE(reader.holds_all(step)) << step;
      EXPECT_EQ(loaded->metadata.state_dict_metadata.size(), 2u + ranks_saved + momentum + scale);
    }
  }

  Scratch scratch_;
  std::vector<std::unique_ptr<ChangingTrainer>> trainers_;
};

TEST_F(AChangingJob, CommitsTheSaveThatBringsATensorOnAllRanksOrOnOne) {
  {
    NodeChild first(scratch_.host("a"), {"root=" + scratch_.root(), "job=job-1", "world=4"});
    const std::string address = first.address();
    ASSERT_NE(address, "");
    NodeChild second(scratch_.host("b"),
                     {"root=" + scratch_.root(), "job=job-1", "world=4", "coordinator=" + address});
    ASSERT_THAT(second.first_line(), ::testing::StartsWith("ready"));
    start_trainers();
    save_and_commit(1);
    for (auto& trainer : trainers_) trainer->add_momentum();
    save_and_commit(2);
    trainers_[2]->add_scale();
    save_and_commit(3);
    save_and_commit(4);
    trainers_.clear();
  }
  expect_loads(1, false, false);
  expect_loads(2, true, false);
  expect_loads(3, true, true);
  expect_loads(4, true, true);
}

// The only node ends in the middle of the switch, and once more after it.
class AChangingJobWhoseNodeEnds : public AChangingJob, public ::testing::WithParamInterface<const char*> {};

TEST_P(AChangingJobWhoseNodeEnds, GoesOnUnderTheRosterInTheRoot) {
  {
    auto start = [&](const std::string& die_at) {
      std::vector<std::string> arguments = {"root=" + scratch_.root(), "job=job-1", "world=2", "rejoin=0"};
      if (!die_at.empty()) arguments.push_back("die_at=" + die_at);
      return std::make_unique<NodeChild>(scratch_.host("a"), arguments);
    };
    auto node = start("");
    ASSERT_NE(node->address(), "");
    auto start_again = [&](const std::string& die_at) {
      node->signal(SIGKILL);
      ASSERT_EQ(node->wait(), 128 + SIGKILL);
      node = start(die_at);
    };
    for (Rank rank : {0u, 1u}) {
      trainers_.push_back(std::make_unique<ChangingTrainer>(scratch_, "a", rank, 2));
      ASSERT_TRUE(trainers_.back()->opened.ok()) << trainers_.back()->opened.status().to_string();
    }
    save_and_commit(1);
    start_again(GetParam());
    for (auto& trainer : trainers_) trainer->add_momentum();
    trainers_[1]->add_scale();
    std::vector<SaveHandle> saves;
    for (auto& trainer : trainers_) saves.push_back(trainer->save(2).value());
    ASSERT_EQ(node->wait(), 128 + SIGKILL) << "it never came to " << GetParam();
    node = start("");
    for (SaveHandle& save : saves) {
      ASSERT_TRUE(save.wait_committed(kPatience).ok()) << save.error().to_string();
    }
    save_and_commit(3);
    start_again("");
    save_and_commit(4);
    trainers_.clear();
  }
  for (uint64_t step : {2, 3, 4}) expect_loads(step, true, true, 2);
}

INSTANTIATE_TEST_SUITE_P(EveryMoment, AChangingJobWhoseNodeEnds,
                         ::testing::Values("PublishRoster:before:1", "PublishRoster:after:1",
                                           "CheckFiles:before:1"),
                         [](const auto& at) {
                           std::string name = at.param;
                           std::erase(name, ':');
                           return name;
                         });

}  // namespace
}  // namespace shoal::testing
