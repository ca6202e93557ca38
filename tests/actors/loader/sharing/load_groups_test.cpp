// Which hosts of a shared load need the same.
#include "actors/loader/sharing/load_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace shoal::actors {
namespace {

using ::testing::ElementsAre;

constexpr uint32_t kGroupRanks = 16, kRanksOfAHost = 4;

// The places of values on a mesh of 2 replicas x 4 x 2 ranks, the last of which hold the same norms.
LayoutPtr replicated_layout() {
  const Mesh mesh = Mesh::contiguous({2, 4, 2});
  LayoutBuilder builder;
  const Placement same = Placement::replicate();
  builder.add_tensor("all", DType::f32, {8}, mesh, {same, same, same});
  builder.add_tensor("norm", DType::f32, {8}, mesh, {Placement::shard(0), Placement::shard(0), same});
  builder.add_tensor("own", DType::f32, {64}, mesh,
                     {Placement::shard(0), Placement::shard(0), Placement::shard(0)});
  builder.add_tensor("weight", DType::f32, {8, 2}, mesh, {same, Placement::shard(0), Placement::shard(1)});
  return std::move(builder).build().value();
}

std::shared_ptr<const wire::LoadRoster> roster_of(const LayoutPtr& layout) {
  auto roster = std::make_shared<wire::LoadRoster>();
  roster->groups = {layout->id()};
  for (uint32_t host = 0; host < kGroupRanks / kRanksOfAHost; ++host) {
    roster->addresses.push_back("host" + std::to_string(host));
    roster->members.push_back({host * kRanksOfAHost, kRanksOfAHost, host, 0});
  }
  return roster;
}

TEST(HostsOfASharedLoad, AreInOneGroupIfTheirRanksHoldTheSameShards) {
  const LayoutPtr layout = replicated_layout();
  LoadGroups groups(layout, roster_of(layout), 0, 1);  // ranks 4 to 7
  EXPECT_THAT(*groups.hosts_of(*layout->find("all")), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(*groups.hosts_of(*layout->find("norm")), ElementsAre(1));
  EXPECT_THAT(*groups.hosts_of(*layout->find("own")), ElementsAre(1));
  EXPECT_THAT(*groups.hosts_of(*layout->find("weight")), ElementsAre(1, 3)) << "the other replica";
}

TEST(HostsOfASharedLoad, AreThoseThatTheRosterNames) {
  const LayoutPtr layout = replicated_layout();
  auto roster = std::make_shared<wire::LoadRoster>(*roster_of(layout));
  roster->members.pop_back();  // host 3 came late
  LoadGroups groups(layout, roster, 0, 1);
  EXPECT_THAT(*groups.hosts_of(*layout->find("weight")), ElementsAre(1));
  LoadGroups of_late(layout, roster, 0, 3);
  EXPECT_THAT(*of_late.hosts_of(*layout->find("weight")), ElementsAre(3));
}

TEST(RanksThatHoldAllOfWhatTheyHold, HoldItAlone) {
  const Mesh mesh = Mesh::contiguous({8, 2});
  LayoutBuilder builder;
  builder.add_tensor("norm", DType::f32, {64}, mesh, {Placement::shard(0), Placement::replicate()});
  builder.add_tensor("weight", DType::f32, {64, 2}, mesh, {Placement::shard(0), Placement::shard(1)});
  builder.add_rank_objects("rng");
  const LayoutPtr layout = std::move(builder).build().value();
  EXPECT_TRUE(hold_alone(*layout, {4, 5, 6, 7}));
  EXPECT_FALSE(hold_alone(*layout, {4, 5, 6})) << "rank 7 has the norm of rank 6";
  EXPECT_FALSE(hold_alone(*replicated_layout(), {0, 1, 2, 3})) << "another replica has the same weights";
}

TEST(RanksThatHoldAllOfWhatTheyHold, AreNotKnownFromExplicitBoxes) {
  LayoutBuilder builder;
  builder.add_tensor_boxes("rows", DType::f32, {4}, {{0, {whole(Dims{4})}}});
  const LayoutPtr layout = std::move(builder).build().value();
  EXPECT_FALSE(hold_alone(*layout, {0, 1, 2, 3}));
}

}  // namespace
}  // namespace shoal::actors
