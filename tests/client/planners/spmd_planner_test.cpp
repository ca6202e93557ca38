// State in tiles on several devices per rank: fetched once, cut to the part without padding, handed over
// once.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "client/loading/placing.h"
#include "client/planners/planned_load.h"
#include "client/planners/planned_save.h"
#include "client/staging/staging.h"
#include "shoal/dcp/spmd_planner.h"
#include "tests/client/planners/elements.h"
#include "tests/client/random_tiles.h"

namespace shoal::client {
namespace {

using dcp::HostShard;
using dcp::SpmdTensor;
using ::testing::HasSubstr;

std::shared_ptr<std::byte> memory_of(const std::vector<uint32_t>& values) {
  std::shared_ptr<std::byte> out(new std::byte[values.size() * 4], std::default_delete<std::byte[]>());
  std::memcpy(out.get(), values.data(), values.size() * 4);
  return out;
}

// The tile in a buffer of the greatest tile's shape, as XLA pads it; what is padding is 0xdead.
HostShard padded_shard(Device device, const Box& tile, const Dims& buffer, const Dims& shape) {
  std::vector<uint32_t> values(*element_count(buffer), 0xdead);
  const std::vector<uint32_t> inner = elements_of(tile, shape);
  for_each_run(whole(tile.sizes), whole(buffer), [&](uint64_t from, uint64_t to, uint64_t count) {
    std::copy_n(inner.begin() + static_cast<ptrdiff_t>(from), count,
                values.begin() + static_cast<ptrdiff_t>(to));
  });
  return {device, buffer, memory_of(values)};
}

struct Fetches {
  int calls = 0, failures = 0;
};

SpmdTensor padded_tensor(const std::string& fqn, const Dims& shape, const TileSharding& tiles, Rank rank,
                         std::shared_ptr<Fetches> fetches) {
  SpmdTensor tensor{fqn, DType::u32, shape, tiles, nullptr, nullptr};
  tensor.fetch = [=]() -> Result<std::vector<HostShard>> {
    ++fetches->calls;
    if (fetches->failures > 0 && fetches->failures-- > 0) return Status(Code::io, "the device is busy");
    Dims buffer = shape;
    for (size_t d = 0; d < shape.size(); ++d)
      buffer[d] = (shape[d] + tiles.tiles()[d] - 1) / tiles.tiles()[d];
    std::vector<HostShard> shards;
    for (Device device : tiles.device_map().devices_of(rank)) {
      if (std::optional<Box> box = tiles.box_of(shape, device)) {
        shards.push_back(padded_shard(device, *box, buffer, shape));
      }
    }
    return shards;
  };
  return tensor;
}

TEST(TheSpmdSavePlanner, PlansATileOnceAndFetchesATensorOnceASave) {
  std::mt19937_64 random(41);
  const DeviceMap devices = *DeviceMap::uniform(4, 3);
  int shared = 0;
  for (int round = 0; round < 200; ++round) {
    const Dims shape{1 + random() % 9, 1 + random() % 9};
    const TileSharding tiles = random_tiles(devices, random);
    const auto rank = static_cast<Rank>(random() % 4);
    auto fetches = std::make_shared<Fetches>();
    dcp::SpmdSavePlanner planner({padded_tensor("x", shape, tiles, rank, fetches)});
    for (int save = 1; save <= 2; ++save) {
      ASSERT_TRUE(planner.set_up_planner(StateDict(), {}, {rank, 4, rank == 0}).ok());
      const dcp::SavePlan plan = planner.create_local_plan().value();
      std::vector<TileSharding::HeldBox> held = tiles.boxes_of(shape, rank);
      ASSERT_EQ(plan.items.size(), std::max<size_t>(held.size(), 1));
      shared += held.size() < 3;
      for (int twice = 0; twice < 2; ++twice) {
        for (const dcp::WriteItem& item : plan.items) {
          const dcp::Data data = planner.resolve_data(item).value();
          std::vector<uint32_t> got(data.bytes.size() / 4);
          if (!got.empty()) std::memcpy(got.data(), data.bytes.data(), data.bytes.size());
          ASSERT_EQ(got, elements_of(item.tensor_data->chunk, shape)) << "padding, or another's elements";
        }
      }
      EXPECT_EQ(fetches->calls, held.empty() ? 0 : save);
      planner.release();
    }
  }
  EXPECT_GT(shared, 50);
}

TEST(TheSpmdSavePlanner, SavesTheLayoutThatTheTilesHaveAndLeavesTheRestToTheDefault) {
  const DeviceMap devices = *DeviceMap::uniform(2, 2);
  const TileSharding tiles = *TileSharding::tiled(devices, {4}, {0, 1, 2, 3});
  auto fetches = std::make_shared<Fetches>();
  uint32_t counter = 7;
  StateDict state;
  state.add_value("counter", DType::u32, {}, &counter, Mesh::contiguous({2}));
  dcp::DefaultSavePlannerOptions options;
  options.keys.rename_prefixes = {{"x", "net.x"}};
  dcp::SpmdSavePlanner planner({padded_tensor("x", {7}, tiles, 1, fetches)}, options);
  PlannedSave save(planner);
  ASSERT_TRUE(save.plan(state, {1, 2, 1}, {1, 2, false}, SaveMode::collective_free, nullptr).ok());
  const BoundState bound = BoundState::bind(save.state_dict(), 1).value();
  LayoutBuilder wanted;
  wanted.add_tensor("net.x", DType::u32, {7}, tiles);
  wanted.add_value("counter", DType::u32, {}, Mesh::contiguous({2}));
  EXPECT_EQ(bound.layout()->id(), std::move(wanted).build().value()->id());
  EXPECT_EQ(fetches->calls, 0) << "nothing is fetched before the assignment is known";
  ASSERT_TRUE(save.resolve(bound, nullptr).ok());
  EXPECT_EQ(fetches->calls, 1);
}

TEST(TheSpmdSavePlanner, IsAskedAgainAfterAFetchOrAWriteFailed) {
  const DeviceMap devices = *DeviceMap::uniform(1, 2);
  const TileSharding tiles = *TileSharding::tiled(devices, {2}, {0, 1});
  auto fetches = std::make_shared<Fetches>();
  fetches->failures = 1;
  dcp::SpmdSavePlanner planner({padded_tensor("x", {3}, tiles, 0, fetches)});
  ASSERT_TRUE(planner.set_up_planner(StateDict(), {}, {0, 1, true}).ok());
  const dcp::SavePlan plan = planner.create_local_plan().value();
  EXPECT_EQ(planner.resolve_data(plan.items[0]).status(), Status(Code::io, "'x': the device is busy"));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(planner.resolve_data(plan.items[0]).value().bytes.size(), 8u);
    EXPECT_EQ(planner.resolve_data(plan.items[1]).value().bytes.size(), 4u);
  }
  EXPECT_EQ(fetches->calls, 2);
}

TEST(TheSpmdSavePlanner, RefusesShardsThatAreNotThere) {
  const DeviceMap devices = *DeviceMap::uniform(1, 2);
  const TileSharding tiles = *TileSharding::tiled(devices, {2}, {0, 1});
  std::vector<HostShard> shards;
  SpmdTensor tensor{"x", DType::u32, {3}, tiles, [&] { return shards; }, nullptr};
  auto message = [&](std::vector<HostShard> given) {
    shards = std::move(given);
    dcp::SpmdSavePlanner planner({tensor});
    EXPECT_TRUE(planner.set_up_planner(StateDict(), {}, {0, 1, true}).ok());
    return planner.resolve_data(planner.create_local_plan()->items[1]).status().message();
  };
  const std::vector<uint32_t> two{1, 2};
  EXPECT_EQ(message({{1, {2}, memory_of(two)}}), "");
  EXPECT_EQ(message({{0, {2}, memory_of(two)}}), "'x': the local shard of device 1 is missing");
  EXPECT_THAT(message({{1, {0}, nullptr}}),
              HasSubstr("'x': the memory of the local shard of device 1 is too small"));
  EXPECT_THAT(message({{1, {1, 1}, memory_of(two)}}), HasSubstr("is too small"));
}

// Rows arrive in any order and pieces; some devices hold the same tile, some none.
TEST(TheSpmdLoadPlanner, HandsATensorOverOnceWithEveryElement) {
  std::mt19937_64 random(43);
  const DeviceMap devices = *DeviceMap::uniform(4, 3);
  for (int round = 0; round < 200; ++round) {
    const Dims shape{1 + random() % 9, 1 + random() % 9};
    const TileSharding tiles = random_tiles(devices, random);
    const auto rank = static_cast<Rank>(random() % 4);
    int handed_over = 0;
    uint64_t arrived = 0, wanted = 0;
    for (const TileSharding::HeldBox& held : tiles.boxes_of(shape, rank)) wanted += held.box.elements();
    SpmdTensor tensor{"x", DType::u32, shape, tiles, nullptr, nullptr};
    tensor.hand_over = [&](std::vector<HostShard> shards) {
      ++handed_over;
      EXPECT_EQ(arrived, wanted);
      EXPECT_EQ(shards.size(), 3u);
      for (const HostShard& shard : shards) {
        const Box box = tiles.box_of(shape, shard.device).value();
        EXPECT_EQ(shard.shape, box.sizes);
        std::vector<uint32_t> got(box.elements());
        if (!got.empty()) std::memcpy(got.data(), shard.data.get(), got.size() * 4);
        EXPECT_EQ(got, elements_of(box, shape));
      }
      return ok_status();
    };
    dcp::SpmdLoadPlanner planner({tensor});
    shoal::Metadata stored;
    stored.state_dict_metadata = {{"x", LayoutEntry::Kind::tensor, DType::u32, shape}};
    PlannedLoad load(planner);
    ASSERT_TRUE(load.plan(StateDict(), dcp::metadata_of(stored), {rank, 4, false}).ok());
    ASSERT_EQ(handed_over, wanted == 0);
    if (wanted > 0) {
      const BoundState bound = BoundState::bind(load.state_dict(), rank).value();
      Placer placer(bound, {0});
      placer.on_arrival([&](const std::string& fqn) { return load.arrived(fqn); });
      std::vector<Box> rows;
      for (uint64_t row = 0; row < shape[0]; ++row) rows.push_back(Box{{row, 0}, {1, shape[1]}});
      std::shuffle(rows.begin(), rows.end(), random);
      for (const Box& row : rows) {
        for (const TileSharding::HeldBox& held : tiles.boxes_of(shape, rank)) {
          if (auto part = intersect(held.box, row)) arrived += part->elements();
        }
        const std::vector<uint32_t> values = elements_of(row, shape);
        Bytes window(values.size() * 4);
        std::memcpy(window.data(), values.data(), window.size());
        ASSERT_TRUE(placer.place({{0, row, 0, window.size(), window.size()}, 0}, window).ok());
        ASSERT_EQ(handed_over, arrived == wanted);
      }
      ASSERT_TRUE(placer.finish().ok());
    }
    ASSERT_TRUE(load.finish().ok());
    ASSERT_EQ(handed_over, 1);
  }
}

TEST(TheSpmdLoadPlanner, LeavesWhatTheCheckpointLacksIfItMay) {
  const DeviceMap devices = *DeviceMap::uniform(1, 2);
  SpmdTensor tensor{"x", DType::u32, {4}, *TileSharding::tiled(devices, {2}, {0, 1}), nullptr, nullptr};
  tensor.hand_over = [](std::vector<HostShard>) { return Status(Code::internal, "it was handed over"); };
  shoal::Metadata stored;
  stored.key = {3, 10, 1};
  auto plan = [&](dcp::SpmdLoadPlanner&& planner) {
    PlannedLoad load(planner);
    std::string message = load.plan(StateDict(), dcp::metadata_of(stored), {0, 1, true}).message();
    EXPECT_THAT(planner.missing(), ::testing::ElementsAre("x"));
    return message;
  };
  EXPECT_EQ(plan(dcp::SpmdLoadPlanner({tensor})),
            "create_local_plan: step-00000010/g3a1 does not have what this load needs: missing 'x'");
  dcp::DefaultLoadPlannerOptions options;
  options.allow_partial_load = true;
  EXPECT_EQ(plan(dcp::SpmdLoadPlanner({tensor}, options)), "");
}

}  // namespace
}  // namespace shoal::client
