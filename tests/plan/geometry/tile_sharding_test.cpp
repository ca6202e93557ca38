// Tile assignments: compared with XLA's rule in golden/tiles.txt (made by make_tiles_golden.py), and
// assignments that are rejected.
#include "shoal/tile_sharding.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <fstream>
#include <random>
#include <set>

#include "tests/plan/test_worlds.h"

namespace shoal::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

DeviceMap device_map(const std::string& text) {
  std::vector<DeviceMap::Owner> owners;
  for (const std::string& part : split_text(text, ' ')) {
    const std::vector<std::string> pair = split_text(part, ':');
    owners.push_back({std::stoull(pair[0]), static_cast<Rank>(std::stoul(pair[1]))});
  }
  return *DeviceMap::make(owners);
}

TileSharding sharding_of(const DeviceMap& devices, const Dims& tiles, bool replicates,
                         const std::string& assignment) {
  if (assignment == "replicated") return TileSharding::replicated(devices);
  if (assignment.starts_with("maximal")) {
    return *TileSharding::maximal(devices, std::stoull(assignment.substr(7)));
  }
  if (!assignment.starts_with("<=")) {
    return *TileSharding::tiled(devices, tiles, numbers_in(assignment), replicates);
  }
  const std::vector<std::string> parts = split_text(assignment.substr(2), 'T');
  const Dims transpose = numbers_in(parts[1]);
  return *TileSharding::iota(devices, tiles, numbers_in(parts[0]), {transpose.begin(), transpose.end()},
                             replicates);
}

std::string ranges(const std::vector<uint64_t>& numbers) {
  std::vector<std::string> out;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    out.push_back(end - i > 1 ? fmt::format("{}-{}", numbers[i], numbers[end - 1])
                              : fmt::to_string(numbers[i]));
    i = end;
  }
  return fmt::format("{}", fmt::join(out, ","));
}

std::string held_text(const TileSharding& sharding, const Dims& shape, Rank rank) {
  std::vector<std::string> out;
  for (const TileSharding::HeldBox& held : sharding.boxes_of(shape, rank)) {
    out.push_back(
        fmt::format("{}/{}", fmt::join(held.devices, ","), ranges(element_numbers(held.box, shape))));
  }
  return fmt::format("{}", fmt::join(out, "|"));
}

TEST(TileShardingGolden, BoxesAreThoseOfTheRuleOfXla) {
  std::ifstream in(SHOAL_PLAN_GOLDEN "/tiles.txt");
  ASSERT_TRUE(in.is_open());
  size_t cases = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with('#')) continue;
    SCOPED_TRACE(line);
    const std::vector<std::string> fields = split_text(line, ';');
    ASSERT_EQ(fields.size(), 7u);
    const Dims shape = numbers_in(fields[0]);
    const TileSharding sharding =
        sharding_of(device_map(fields[4]), numbers_in(fields[1]), fields[2] == "1", fields[3]);
    ASSERT_TRUE(sharding.validate_for(shape).ok());
    ASSERT_EQ(held_text(sharding, shape, static_cast<Rank>(std::stoul(fields[5]))), fields[6]);
    ++cases;
  }
  EXPECT_GT(cases, 300u);
}

TEST(TileSharding, NamesWhatIsWrongWithAnAssignment) {
  const DeviceMap devices = *DeviceMap::uniform(2, 2);
  auto message = [&](Dims tiles, std::vector<Device> assignment, bool replicates = false) {
    Result<TileSharding> sharding = TileSharding::tiled(devices, std::move(tiles), assignment, replicates);
    EXPECT_EQ(sharding.status().code(), Code::invalid_argument);
    return sharding.status().message();
  };
  EXPECT_EQ(message({2, 2}, {0, 1, 2}), "a tile assignment of [2,2] needs 4 devices, and 3 are given");
  EXPECT_EQ(message({4}, {0, 1, 2, 2}), "device 2 occurs twice in a tile assignment");
  EXPECT_EQ(message({4}, {0, 1, 2, 4}), "device 4 of a tile assignment is in no rank's device map");
  EXPECT_EQ(message({2, 0}, {}), "dimension 1 of a tile assignment is 0");
  EXPECT_THAT(message({}, {0}), HasSubstr("has 0 dimensions"));
  EXPECT_THAT(message(Dims(kMaxDims + 1, 1), {0}), HasSubstr("has 33 dimensions"));
  EXPECT_THAT(message({1ull << 40, 1ull << 40}, {0}), HasSubstr("more than"));
  EXPECT_EQ(TileSharding::maximal(devices, 9).status().message(),
            "device 9 of a tile assignment is in no rank's device map");
  EXPECT_THAT(TileSharding::iota(devices, {4}, {2, 2}, {0, 2}).status().message(), HasSubstr("T(0,2)"));
  EXPECT_THAT(TileSharding::iota(devices, {4}, {2, 2}, {0}).status().message(), HasSubstr("2 dimensions"));
  EXPECT_THAT(TileSharding::iota(devices, {4}, {0, 4}).status().message(), HasSubstr("<=[0,4]"));
  EXPECT_EQ(DeviceMap::make({{3, 0}, {3, 1}}).status().message(), "device 3 occurs twice in a device map");
  EXPECT_FALSE(DeviceMap::make({}).ok());
  EXPECT_FALSE(DeviceMap::uniform(1u << 20, 1u << 20).ok());
}

TEST(TileSharding, FitsTensorsOfItsDimensionsAlone) {
  const DeviceMap devices = *DeviceMap::uniform(2, 2);
  const TileSharding plain = *TileSharding::tiled(devices, {2, 2}, {0, 1, 2, 3});
  const TileSharding partial = *TileSharding::tiled(devices, {2, 2}, {0, 1, 2, 3}, true);
  EXPECT_TRUE(plain.validate_for(Dims{8, 8}).ok());
  EXPECT_TRUE(partial.validate_for(Dims{8}).ok());
  EXPECT_EQ(plain.validate_for(Dims{8}).message(),
            "a tile assignment of [2,2] does not fit a tensor of 1 dimensions");
  EXPECT_EQ(
      partial.validate_for(Dims{8, 8}).message(),
      "a tile assignment of [2,2] (its last dimension replicates) does not fit a tensor of 2 dimensions");
  EXPECT_TRUE(TileSharding::replicated(devices).validate_for(Dims{}).ok());
}

TEST(TileSharding, KnowsWhatIsNotShardedAtAll) {
  const DeviceMap devices = *DeviceMap::uniform(2, 2);
  EXPECT_FALSE(TileSharding::replicated(devices).is_sharded());
  EXPECT_FALSE(TileSharding::maximal(devices, 3)->is_sharded());
  EXPECT_FALSE(TileSharding::tiled(devices, {1, 1, 4}, {0, 1, 2, 3}, true)->is_sharded());
  EXPECT_TRUE(TileSharding::tiled(devices, {1, 1, 4}, {0, 1, 2, 3})->is_sharded());
  EXPECT_EQ(TileSharding::replicated(devices).on_mesh().mesh, Mesh::contiguous({2}));
  EXPECT_EQ(TileSharding::maximal(devices, 3)->on_mesh().mesh, Mesh::single(1));
}

TEST(TileSharding, SaysTheSameOnAMeshWhateverTheDevicesAreCalled) {
  const DeviceMap a = *DeviceMap::uniform(2, 2), b = *DeviceMap::make({{70, 0}, {10, 0}, {20, 1}, {99, 1}});
  const TileSharding x = *TileSharding::tiled(a, {2, 2}, {0, 2, 1, 3});
  const TileSharding y = *TileSharding::tiled(b, {2, 2}, {70, 99, 10, 20});
  EXPECT_FALSE(x == y);
  EXPECT_EQ(x.on_mesh().mesh, y.on_mesh().mesh);
  EXPECT_EQ(x.on_mesh().mesh, *Mesh::affine({2, 2}, 0, {1, 2}));
  EXPECT_EQ(x.on_mesh().devices_per_rank, 2u);
  EXPECT_THAT(b.devices_of(0), ElementsAre(10u, 70u));
  EXPECT_EQ(x, *TileSharding::iota(a, {2, 2}, {2, 2}, {1, 0}));
}

TEST(TileSharding, WithOneDeviceARankIsAMeshOfRanks) {
  const DeviceMap devices = *DeviceMap::uniform(4, 2);
  const TileSharding sharding = *TileSharding::tiled(devices, {2, 1, 2}, {6, 0, 3, 4}, true);
  EXPECT_EQ(sharding.on_mesh().mesh, *Mesh::from_ranks({2, 1, 2}, {3, 0, 1, 2}));
  EXPECT_EQ(sharding.on_mesh().devices_per_rank, 1u);
  EXPECT_THAT(sharding.on_mesh().placements(),
              ElementsAre(Placement::shard(0), Placement::shard(1), Placement::replicate()));
}

TEST(TileSharding, CutsAsShardOnTheMeshOfItsDevicesDoes) {
  std::mt19937_64 random(40);
  for (int round = 0; round < 500; ++round) {
    const DeviceMap devices =
        *DeviceMap::uniform(static_cast<uint32_t>(1 + random() % 4), static_cast<uint32_t>(1 + random() % 4));
    const TileSharding sharding = random_tiles(random, devices, 1 + random() % 4);
    const Mesh& mesh = sharding.on_mesh().mesh;
    const std::span<const Placement> placements = sharding.on_mesh().placements();
    Dims shape(sharding.tiles().size() - (sharding.replicate_on_last_tile_dim() ? 1 : 0));
    for (uint64_t& size : shape) size = random() % 12;
    ASSERT_TRUE(validate_placements(placements, mesh, shape).ok());
    for (Rank rank : devices.ranks().ranks()) {
      std::set<Box> expected, held;
      const uint32_t per_rank = sharding.on_mesh().devices_per_rank;
      for (uint32_t i = 0; i < per_rank; ++i) {
        std::optional<Dims> coordinate = mesh.coordinate_of(rank * per_rank + i);
        if (!coordinate) continue;
        for (Box& box : shards_at(shape, mesh, placements, *coordinate).boxes)
          expected.insert(std::move(box));
      }
      for (TileSharding::HeldBox& box : sharding.boxes_of(shape, rank)) held.insert(std::move(box.box));
      ASSERT_EQ(held, expected);
    }
  }
}

}  // namespace
}  // namespace shoal::plan
