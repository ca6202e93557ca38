// Tensors with the shardings of XLA and JAX, with several local shards per process, through clients, nodes
// and files. They are saved as tiles and loaded with DTensor placements, and the reverse, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "tests/process/trainer.h"

namespace shoal::testing {
namespace {

const std::map<std::string, Dims> kShapes{{"bias", {13}},    {"conv", {2, 3, 4, 3, 5}},
                                          {"empty", {0, 4}}, {"kernel", {37, 10}},
                                          {"scale", {}},     {"table", {6}}};

// Element i of a tensor, wherever it lies.
uint32_t element(const std::string& name, uint64_t i) {
  return static_cast<uint32_t>(name[0]) * 1'000'003u + static_cast<uint32_t>(i);
}

// The elements of a box, row-major.
std::vector<uint32_t> elements_of(const std::string& name, const Box& box) {
  std::vector<uint32_t> out;
  for_each_run(box, whole(kShapes.at(name)), [&](uint64_t, uint64_t at, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) out.push_back(element(name, at + i));
  });
  return out;
}

class ATiledRank {
 public:
  ATiledRank(const Scratch& scratch, const std::string& host, Rank rank, uint32_t world,
             const std::string& job)
      : rank_(rank), trainer_(scratch, host, rank, world, job) {
    EXPECT_TRUE(trainer_.opened.ok()) << trainer_.opened.status().to_string();
  }
  Checkpointer& checkpointer() { return trainer_.checkpointer(); }

  void add(const std::string& name, const TileSharding& sharding) {
    const Dims& shape = kShapes.at(name);
    std::vector<StateDict::DeviceData> shards;
    for (Device device : sharding.device_map().devices_of(rank_)) {
      std::optional<Box> box = sharding.box_of(shape, device);
      if (box) shards.push_back({device, buffer(elements_of(name, *box))});
    }
    state.add_tensor(name, DType::u32, shape, sharding, std::move(shards));
  }
  // Shards that are one box each.
  void add(const std::string& name, const Mesh& mesh, std::vector<Placement> placements) {
    const LocalShards mine = shards_at(kShapes.at(name), mesh, placements, *mesh.coordinate_of(rank_));
    void* data = buffer(mine.boxes.empty() ? std::vector<uint32_t>{} : elements_of(name, mine.boxes.at(0)));
    state.add_tensor(name, DType::u32, kShapes.at(name), mesh, std::move(placements), data);
  }
  void forget() {
    for (std::vector<uint32_t>& one : memory_) std::fill(one.begin(), one.end(), 0u);
  }
  // Every local shard, whichever of several devices holds it too.
  bool holds_all() const { return memory_ == wanted_; }

  StateDict state;

 private:
  void* buffer(std::vector<uint32_t> elements) {
    wanted_.push_back(elements);
    memory_.push_back(std::move(elements));
    return memory_.back().data();
  }

  const Rank rank_;
  Trainer trainer_;
  std::deque<std::vector<uint32_t>> memory_, wanted_;
};

// Four devices a rank, called as JAX might: tiles on one device, twice on one rank, and on both ranks.
void add_tiles(ATiledRank& rank) {
  const DeviceMap devices =
      *DeviceMap::make({{0, 0}, {1, 0}, {2, 0}, {3, 0}, {2048, 1}, {2049, 1}, {2050, 1}, {2051, 1}});
  rank.add("bias", *TileSharding::tiled(devices, {8}, {2051, 0, 1, 2, 3, 2048, 2049, 2050}));
  rank.add("conv",
           *TileSharding::tiled(devices, {1, 2, 1, 1, 1, 4}, {0, 1, 2, 3, 2048, 2049, 2050, 2051}, true));
  rank.add("empty", *TileSharding::tiled(devices, {2, 1, 2}, {0, 1, 2048, 2049}, true));
  rank.add("kernel", *TileSharding::tiled(devices, {2, 2, 2}, {0, 2048, 1, 2, 2049, 2050, 3, 2051}, true));
  rank.add("scale", TileSharding::replicated(devices));
  rank.add("table", *TileSharding::maximal(devices, 2050));
}

void add_placements(ATiledRank& rank) {
  const Mesh mesh = Mesh::contiguous({3});
  rank.add("bias", mesh, {Placement::shard(0)});
  rank.add("conv", mesh, {Placement::shard(4)});
  rank.add("empty", mesh, {Placement::shard(1)});
  rank.add("kernel", mesh, {Placement::shard(0)});
  rank.add("scale", mesh, {Placement::replicate()});
  rank.add("table", mesh, {Placement::shard(0)});
}

class ATiledState : public ::testing::Test {
 protected:
  // A separate job that saves the state with the layout of `add`, twice, the second time by plan.
  void save(const std::string& job, uint32_t world, uint64_t step, void (*add)(ATiledRank&)) {
    NodeChild node(scratch_.host(job),
                   {"root=" + scratch_.root(), "job=" + job, "world=" + std::to_string(world)});
    ASSERT_NE(node.address(), "");
    std::deque<ATiledRank> ranks = make_ranks(job, world, add);
    for (uint64_t each : {step, step + 1}) {
      std::vector<SaveHandle> saves;
      for (ATiledRank& rank : ranks) saves.push_back(rank.checkpointer().save(each, rank.state).value());
      for (SaveHandle& save : saves) {
        ASSERT_TRUE(save.wait_committed(kPatience).ok()) << save.error().to_string();
        EXPECT_EQ(save.stats().with_plan, each > step);
      }
    }
  }
  void load(const std::string& job, uint32_t world, uint64_t step, void (*add)(ATiledRank&)) {
    NodeChild node(scratch_.host(job),
                   {"root=" + scratch_.root(), "job=" + job, "world=" + std::to_string(world)});
    ASSERT_NE(node.address(), "");
    std::deque<ATiledRank> ranks = make_ranks(job, world, add);
    for (uint64_t each : {step, step + 1}) {
      for (ATiledRank& rank : ranks) {
        rank.forget();
        auto loaded = rank.checkpointer().load(rank.state, {.step = each});
        ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
        EXPECT_TRUE(rank.holds_all());
      }
    }
  }

 private:
  std::deque<ATiledRank> make_ranks(const std::string& job, uint32_t world, void (*add)(ATiledRank&)) {
    std::deque<ATiledRank> ranks;
    for (Rank rank = 0; rank < world; ++rank) add(ranks.emplace_back(scratch_, job, rank, world, job));
    return ranks;
  }
  Scratch scratch_;
};

TEST_F(ATiledState, IsLoadedByPlacementsAndTheReverse) {
  save("tiles", 2, 1, add_tiles);
  load("tiles-again", 2, 1, add_tiles);
  load("placements", 3, 1, add_placements);
  save("placed", 3, 3, add_placements);
  load("tiled", 2, 3, add_tiles);
}

}  // namespace
}  // namespace shoal::testing
