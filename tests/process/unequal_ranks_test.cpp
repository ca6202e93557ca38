// The cases that break a planner which trusts one rank's layout for all ranks, together in one job of real
// clients and nodes: FSDP over two and TP over two, in each mode. tests/sim/bytes/unequal_ranks_test.cpp has
// the cases one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "shoal/hash.h"
#include "tests/process/trainer.h"

namespace shoal::testing {
namespace {

constexpr uint64_t kBufferElements = 5000;  // of many units

uint32_t element(const std::string& copy, uint64_t i, uint64_t step) {
  return static_cast<uint32_t>(xxh3_64(copy + "/" + std::to_string(step)) + i * 2'654'435'761u);
}

// The elements of a box of the value that is called `copy`.
std::vector<uint32_t> elements_of(const std::string& copy, const Dims& shape, const Box& box, uint64_t step) {
  std::vector<uint32_t> out;
  for_each_run(box, whole(shape), [&](uint64_t, uint64_t at, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) out.push_back(element(copy, at + i, step));
  });
  return out;
}

std::string loader_at(uint64_t step) {
  return std::string(step == 2 ? 100'000 : 7 * step, static_cast<char>('a' + step));
}

// A rank's state, made again for each save and load.
class AState {
 public:
  AState(Rank rank, uint64_t step) : rank_(rank), step_(step) {}

  // `copy`: whose bytes this rank has of it.
  void add(const std::string& fqn, const Dims& shape, const Mesh& mesh, std::vector<Placement> placements,
           const std::string& copy) {
    const LocalShards mine = shards_at(shape, mesh, placements, *mesh.coordinate_of(rank_));
    HeldValue& held = held_[fqn];
    held.shape = shape;
    if (!mine.boxes.empty()) held.box = mine.boxes.at(0);
    if (!mine.boxes.empty()) held.memory = elements_of(copy, shape, held.box, step_);
    state.add_tensor(fqn, DType::u32, shape, mesh, std::move(placements), held.memory.data());
  }
  void add_buffer(const std::string& fqn, uint64_t elements, const Mesh& group, const std::string& copy) {
    HeldValue& held = held_[fqn];
    held.shape = {elements};
    held.box = whole(held.shape);
    held.memory = elements_of(copy, held.shape, held.box, step_);
    state.add_value(fqn, DType::u32, held.shape, held.memory.data(), group);
  }
  void forget() {
    for (auto& [fqn, held] : held_) std::fill(held.memory.begin(), held.memory.end(), 0u);
  }
  bool holds(const std::string& fqn, const std::string& copy, uint64_t step) const {
    const HeldValue& held = held_.at(fqn);
    return held.memory == elements_of(copy, held.shape, held.box, step);
  }
  StateDict state;

 private:
  struct HeldValue {
    Dims shape;
    Box box;
    std::vector<uint32_t> memory;
  };
  const Rank rank_;
  const uint64_t step_;
  std::map<std::string, HeldValue> held_;  // references to it stay good
};

const Placement kShard0 = Placement::shard(0), kShard1 = Placement::shard(1),
                kReplicate = Placement::replicate();

struct ARank : Trainer {
  using Trainer::Trainer;
  // "embed" is tied on the first and last rank; of experts each TP rank has its own, and makes state for
  // expert 1 at the second save; a norm and a buffer have other bytes on each that nothing proves equal.
  Result<SaveHandle> save_hard(uint64_t step) {
    const uint32_t tp = rank % 2;
    const Mesh both = Mesh::contiguous({2, 2}), over_data = Mesh::affine({2}, tp, {2}).value();
    const std::string expert = "experts." + std::to_string(tp);
    AState mine(rank, step);
    mine.add("attn", {41, 26}, both, {kShard0, kShard1}, "attn");
    mine.add("norm", {333}, over_data, {kShard0}, "norm of tp " + std::to_string(tp));
    mine.add(expert, {40, 30}, over_data, {kReplicate}, expert);
    if (tp == 1 && step >= 2)
      mine.add(expert + ".exp_avg", {40, 30}, over_data, {kShard0}, expert + ".exp_avg");
    if (rank == 0 || rank == 3) {
      mine.add("embed", {900}, Mesh::single(rank), {kReplicate}, "embed of rank " + std::to_string(rank));
    }
    mine.add_buffer("mean", kBufferElements, Mesh::contiguous({4}), "mean of rank " + std::to_string(rank));
    std::string loader = loader_at(step);
    mine.state.add_object("loader", &loader, Mesh::contiguous({4}), true);
    return checkpointer().save(step, mine.state);  // its memory is free again
  }
};

class UnequalRanks : public ::testing::TestWithParam<SaveMode> {
 protected:
  static void in_mode(CheckpointerOptions& options) {
    options.save.mode = GetParam();
    options.save.unit_bytes = 1024;
  }
  void expect_loads(uint64_t step) {
    const std::string job = "loads-" + std::to_string(step);
    NodeChild node(scratch_.host(job), {"root=" + scratch_.root(), "job=" + job, "world=2"});
    ASSERT_NE(node.address(), "");
    const Mesh all = Mesh::contiguous({2});
    std::map<std::string, std::vector<std::string>> copies = {
        {"attn", {"attn"}},
        {"norm", {"norm of tp 0", "norm of tp 1"}},
        {"embed", {"embed of rank 0", "embed of rank 3"}},
        {"mean", {"mean of rank 0", "mean of rank 1", "mean of rank 2", "mean of rank 3"}},
        {"experts.0", {"experts.0"}},
        {"experts.1", {"experts.1"}}};
    if (step >= 2) copies["experts.1.exp_avg"] = {"experts.1.exp_avg"};
    const std::map<std::string, Dims> shapes = {{"attn", {41, 26}},
                                                {"norm", {333}},
                                                {"embed", {900}},
                                                {"mean", {kBufferElements}},
                                                {"experts.0", {40, 30}},
                                                {"experts.1", {40, 30}},
                                                {"experts.1.exp_avg", {40, 30}}};
    std::vector<AState> readers;
    readers.reserve(2);
    for (Rank rank : {0u, 1u}) {
      Trainer trainer(scratch_, job, rank, 2, job);
      ASSERT_TRUE(trainer.opened.ok()) << trainer.opened.status().to_string();
      AState& reader = readers.emplace_back(rank, step);
      for (const auto& [fqn, of] : copies) reader.add(fqn, shapes.at(fqn), all, {kShard0}, fqn);
      reader.forget();
      std::string loader;
      reader.state.add_object("loader", &loader, all, true);
      auto loaded = trainer.checkpointer().load(reader.state, {.step = step});
      ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
      EXPECT_EQ(loaded->metadata.state_dict_metadata.size(), copies.size() + 1);
      EXPECT_EQ(loader, loader_at(step));
    }
    for (const auto& [name, of] : copies) {
      const std::string& fqn = name;  // C++20: a lambda of clang 14 captures no structured binding
      const auto whose = std::count_if(of.begin(), of.end(), [&](const std::string& copy) {
        return readers[0].holds(fqn, copy, step) && readers[1].holds(fqn, copy, step);
      });
      EXPECT_EQ(whose, 1) << fqn << " is not what one of its holders saved at step " << step;
    }
  }
  Scratch scratch_;
};

TEST_P(UnequalRanks, InOneJobAreLoadedOnOtherRanksBitForBit) {
  constexpr uint64_t kSteps = 3;
  {
    NodeChild first(scratch_.host("a"), {"root=" + scratch_.root(), "job=job-1", "world=4"});
    const std::string address = first.address();
    ASSERT_NE(address, "");
    NodeChild second(scratch_.host("b"),
                     {"root=" + scratch_.root(), "job=job-1", "world=4", "coordinator=" + address});
    ASSERT_THAT(second.first_line(), ::testing::StartsWith("ready"));
    std::vector<std::unique_ptr<ARank>> ranks;
    for (Rank rank = 0; rank < 4; ++rank) {
      ranks.push_back(std::make_unique<ARank>(scratch_, rank < 2 ? "a" : "b", rank, 4, "job-1", in_mode));
      ASSERT_TRUE(ranks.back()->opened.ok()) << ranks.back()->opened.status().to_string();
    }
    for (uint64_t step = 1; step <= kSteps; ++step) {
      const auto committed = together(ranks, [&](ARank& rank) {
        auto saved = rank.save_hard(step);
        return saved.ok() ? saved->wait_committed(kPatience).status() : saved.status();
      });
      for (const Status& each : committed) ASSERT_TRUE(each.ok()) << step << ": " << each.to_string();
    }
  }
  for (uint64_t step = 1; step <= kSteps; ++step) expect_loads(step);
}

INSTANTIATE_TEST_SUITE_P(InEachMode, UnequalRanks,
                         ::testing::Values(SaveMode::collective, SaveMode::rank_local,
                                           SaveMode::collective_free),
                         mode_test_name);

}  // namespace
}  // namespace shoal::testing
