// Process groups: the rank numbers of a subset of ranks, and a state in these numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/launch/checkpointer_options.h"
#include "client/state_dict.h"

namespace shoal::client {
namespace {

using ::testing::HasSubstr;

CheckpointerOptions rank_of_group(Rank rank, std::vector<Rank> group) {
  CheckpointerOptions options;
  options.root = "/tmp/some";
  options.rank = rank;
  options.world_size = 8;
  options.job_id = "job";
  options.process_group = std::move(group);
  return options;
}

TEST(ProcessGroup, GivesARankItsPlace) {
  CheckpointerOptions options = rank_of_group(5, {1, 4, 5, 7});
  ASSERT_TRUE(complete_options(options).ok());
  EXPECT_EQ(options.rank, 2u);
  EXPECT_EQ(options.world_size, 4u);
  EXPECT_EQ(rank_in_world(options), 5u);
  CheckpointerOptions all = rank_of_group(5, {});
  ASSERT_TRUE(complete_options(all).ok());
  EXPECT_EQ(all.rank, 5u);
  EXPECT_EQ(rank_in_world(all), 5u);
}

TEST(ProcessGroup, OfWrongRanksIsRefusedByName) {
  auto refusal = [](Rank rank, std::vector<Rank> group, Rank coordinator_rank = 0) {
    CheckpointerOptions options = rank_of_group(rank, std::move(group));
    options.coordinator_rank = coordinator_rank;
    return complete_options(options).message();
  };
  EXPECT_EQ(refusal(2, {1, 4}), "rank 2 is not in the process group");
  EXPECT_EQ(refusal(1, {1, 8}), "the process group has rank 8, which is not in a world of 8");
  EXPECT_EQ(refusal(1, {4, 1}), "the ranks of a process group must be in ascending order, each once");
  EXPECT_EQ(refusal(1, {1, 1}), "the ranks of a process group must be in ascending order, each once");
  EXPECT_EQ(refusal(4, {1, 4}, 4), "coordinator_rank 4 is not in a world of 2");
  EXPECT_EQ(refusal(4, {1, 4}, 1), "");
  CheckpointerOptions nameless = rank_of_group(4, {1, 4});
  nameless.job_id.clear();
  nameless.job_id_exchange = JobIdExchange{"", "run"};
  EXPECT_THAT(complete_options(nameless).message(), HasSubstr("set job_id"));
}

TEST(ProcessGroup, RenumbersMeshesAndTheOwnersOfDevices) {
  CheckpointerOptions options = rank_of_group(4, {1, 4, 5, 7});
  ASSERT_TRUE(complete_options(options).ok());
  float w[6] = {}, x[6] = {};
  std::string object;
  StateDict state;
  state.add_tensor("w", DType::f32, {12}, Mesh::from_ranks({2}, {7, 4}).value(), {Placement::shard(0)}, w);
  state.add_object("o", &object, Mesh::from_ranks({4}, {1, 4, 5, 7}).value());
  const DeviceMap devices = DeviceMap::uniform(8, 2).value();
  // Devices 8 and 9 are of rank 4, 14 and 15 of rank 7.
  state.add_tensor("x", DType::f32, {12}, TileSharding::tiled(devices, {4}, {14, 8, 15, 9}).value(),
                   {{8, x}, {9, x + 3}});
  state.add_rank_object("own", &object);
  Result<StateDict> own = in_process_group(options, state);
  ASSERT_TRUE(own.ok()) << own.status().to_string();
  ASSERT_EQ(own->entries().size(), 4u);
  EXPECT_EQ(own->entries()[0]->mesh->ranks(), (std::vector<Rank>{3, 1}));
  EXPECT_EQ(*own->entries()[1]->mesh, Mesh::contiguous({4}));
  const TileSharding& tiles = *own->entries()[2]->tiles;
  EXPECT_EQ(tiles.device_map().devices_of(1), (std::vector<Device>{8, 9}));
  EXPECT_EQ(tiles.device_map().rank_of(15), std::optional<Rank>(3));
  Result<BoundState> bound = BoundState::bind(*own, options.rank);
  ASSERT_TRUE(bound.ok()) << bound.status().to_string();
  EXPECT_EQ(bound->fqn_of(1), "own@rank1");
  EXPECT_EQ(static_cast<void*>(bound->data_of(3, 1)), x + 3) << "the second tile of rank 4";
}

TEST(ProcessGroup, AMeshBeyondItIsRefusedByName) {
  CheckpointerOptions options = rank_of_group(4, {1, 4});
  ASSERT_TRUE(complete_options(options).ok());
  float w[6] = {};
  StateDict state;
  state.add_tensor("w", DType::f32, {12}, Mesh::from_ranks({2}, {4, 5}).value(), {Placement::shard(0)}, w);
  EXPECT_EQ(in_process_group(options, state).status().message(), "'w': rank 5 is not in the process group");
  StateDict tiles;
  const DeviceMap devices = DeviceMap::uniform(8, 1).value();
  tiles.add_tensor("x", DType::f32, {12}, TileSharding::tiled(devices, {2}, {4, 6}).value(), {{4, w}});
  EXPECT_THAT(in_process_group(options, tiles).status().message(), HasSubstr("'x': "));
}

}  // namespace
}  // namespace shoal::client
