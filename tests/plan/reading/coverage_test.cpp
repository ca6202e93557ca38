#include <gmock/gmock.h>

#include "plan/reading/locate.h"
#include "shoal/save_plan.h"
#include "tests/plan/test_worlds.h"

namespace shoal::plan {
namespace {

using ::testing::HasSubstr;

template <class Add>
LayoutPtr layout_with(Add&& add) {
  LayoutBuilder builder;
  add(builder);
  return *std::move(builder).build();
}

TEST(Coverage, NamesTheShardThatNobodyHolds) {
  const Mesh mesh = Mesh::contiguous({4});
  LayoutPtr full = layout_with([&](auto& b) { b.add_tensor("w", DType::f32, {8, 2}, mesh, {kShard0}); });
  LayoutPtr none = layout_with([](auto&) {});
  EXPECT_TRUE(check_coverage(world_of({full, full, full, full}), {}).ok());
  EXPECT_EQ(check_coverage(world_of({full, full, none, full}), {}).message(),
            "'w': no rank holds [4:6, 0:2], which rank 2 of the mesh (4 ranks 0-3) must hold");
}

// Regression: the error did not name the meshes.
TEST(Coverage, NamesTheMeshesAndPlacementsThatRanksStateDifferently) {
  LayoutPtr on_two = layout_with([&](auto& b) {
    b.add_tensor("w", DType::f32, {8, 2}, Mesh::contiguous({2}), {kShard0});
  });
  LayoutPtr on_four = layout_with([&](auto& b) {
    b.add_tensor("w", DType::f32, {8, 2}, Mesh::contiguous({2, 2}), {Placement::replicate(), kShard0});
  });
  LayoutPtr none = layout_with([](auto&) {});
  EXPECT_THAT(check_coverage(world_of({on_two, none, on_four, none}), {}).message(),
              HasSubstr("; ranks state different meshes or placements of it: rank 0 [Shard(0)] on 2 ranks "
                        "0-1, and rank 2 [Replicate(), Shard(0)] on 2x2 ranks 0-3"));
}

TEST(Coverage, MissesNoShardThatIsEmptyOrHeldByAReplica) {
  const Mesh mesh = Mesh::contiguous({2, 2});
  LayoutPtr full = layout_with([&](auto& b) {
    b.add_tensor("w", DType::f32, {8}, mesh, {Placement::replicate(), kShard0});
    b.add_tensor("short", DType::f32, {1}, mesh, {Placement::replicate(), kShard0});
  });
  LayoutPtr none = layout_with([](auto&) {});
  EXPECT_TRUE(check_coverage(world_of({full, full, none, none}), {}).ok());
  LayoutPtr small = layout_with([&](auto& b) {
    b.add_tensor("short", DType::f32, {1}, mesh, {Placement::replicate(), kShard0});
  });
  EXPECT_TRUE(check_coverage(world_of({small, none, none, none}), {}).ok());
}

TEST(Coverage, NamesTheTileThatNobodyHolds) {
  const DeviceMap devices = *DeviceMap::uniform(4, 2);
  LayoutPtr full = layout_with([&](auto& b) {
    b.add_tensor("w", DType::f32, {8, 2}, *TileSharding::iota(devices, {4, 1, 2}, {8}, {}, true));
    b.add_tensor("x", DType::f32, {8, 2}, *TileSharding::iota(devices, {4, 1, 2}, {2, 4}, {1, 0}, true));
  });
  LayoutPtr none = layout_with([](auto&) {});
  EXPECT_TRUE(check_coverage(world_of({full, full, full, full}), {}).ok());
  EXPECT_EQ(check_coverage(world_of({full, full, none, full}), {}).message(),
            "'w': no rank holds [4:6, 0:2], which rank 2 of the mesh (4x1x2 devices, 2 a rank) must hold");
  LayoutPtr x = layout_with([&](auto& b) {
    b.add_tensor("x", DType::f32, {8, 2}, *TileSharding::iota(devices, {4, 1, 2}, {2, 4}, {1, 0}, true));
  });
  EXPECT_TRUE(check_coverage(world_of({none, x, x, none}), {}).ok()) << "replicas stand in";
  EXPECT_FALSE(check_coverage(world_of({x, none, x, none}), {}).ok());
}

TEST(Coverage, PrefersAMeshThatHoldsTheWholeValue) {
  auto on = [](Rank base) {
    return layout_with([&](auto& b) {
      for (char name = 'a'; name < 'm'; ++name) {
        b.add_tensor(std::string(1, name), DType::f32, {8}, Mesh::contiguous({2}, base), {kShard0});
      }
    });
  };
  LayoutPtr none = layout_with([](auto&) {});
  World world = world_of({on(0), none, on(2), on(2)});
  EXPECT_TRUE(check_coverage(world, {}).ok());
  EXPECT_TRUE(plan_save(world, 0, {})->items.empty());
  EXPECT_EQ(plan_save(world, 2, {})->items.size(), 12u);
}

TEST(Coverage, ChecksExplicitBoxesOfAllLayoutsTogether) {
  auto with = [](Rank rank, Box box) {
    return layout_with([&](auto& b) { b.add_tensor_boxes("w", DType::f32, {8}, {{rank, {box}}}); });
  };
  EXPECT_TRUE(check_coverage(world_of({with(0, {{0}, {4}}), with(1, {{4}, {4}})}), {}).ok());
  EXPECT_EQ(check_coverage(world_of({with(0, {{0}, {4}}), with(1, {{5}, {3}})}), {}).message(),
            "'w': no box covers [4:5]");
  EXPECT_EQ(check_coverage(world_of({with(0, {{0}, {4}}), with(1, {{3}, {5}})}), {}).message(),
            "'w': boxes [0:4] and [3:8] overlap");
}

TEST(Coverage, ARankHoldsWhatItsOwnLayoutSays) {
  // Rank 0's layout lists a box for rank 1, whose own layout does not know the value.
  LayoutPtr lists = layout_with([](auto& b) {
    b.add_tensor_boxes("w", DType::f32, {8}, {{0, {{{0}, {4}}}}, {1, {{{4}, {4}}}}});
  });
  LayoutPtr none = layout_with([](auto&) {});
  EXPECT_TRUE(check_coverage(world_of({lists, lists}), {}).ok());
  EXPECT_THAT(check_coverage(world_of({lists, none}), {}).message(), HasSubstr("no box covers [4:8]"));
}

TEST(Coverage, AnObjectOrEmptyTensorNeedsAHolder) {
  LayoutPtr elsewhere = layout_with([](auto& b) { b.add_object("o", Mesh::single(1)); });
  LayoutPtr none = layout_with([](auto&) {});
  EXPECT_THAT(check_coverage(world_of({elsewhere, none}), {}).message(),
              HasSubstr("'o': no rank holds this value"));
  EXPECT_TRUE(check_coverage(world_of({elsewhere, elsewhere}), {}).ok());
}

TEST(World, RefusesLayoutsThatContradictEachOther) {
  const Mesh mesh = Mesh::contiguous({2});
  auto message = [&](auto&& add) {
    LayoutPtr a = layout_with([&](auto& b) { b.add_tensor("w", DType::f32, {8}, mesh, {kShard0}); });
    LayoutPtr b = layout_with(add);
    World world;
    world.roster = *Roster::make(std::vector<LayoutId>{a->id(), b->id()}, std::vector<uint32_t>{0, 0});
    world.layouts = {a, b};
    return validate_world(world).message();
  };
  EXPECT_THAT(message([&](auto& b) { b.add_tensor("w", DType::bf16, {8}, mesh, {kShard0}); }),
              HasSubstr("dtypes"));
  EXPECT_THAT(message([&](auto& b) { b.add_tensor("w", DType::f32, {9}, mesh, {kShard0}); }),
              HasSubstr("shapes"));
  EXPECT_THAT(message([&](auto& b) { b.add_object("w", mesh); }), HasSubstr("kinds"));
  EXPECT_THAT(message([&](auto& b) {
                b.add_tensor_boxes("w", DType::f32, {8}, {{1, {{{0}, {8}}}}});
              }),
              HasSubstr("explicit boxes"));
  EXPECT_THAT(message([&](auto& b) { b.add_object("x", Mesh::single(2)); }),
              HasSubstr("'x' names a rank that is not in a world"));
  const TileSharding three = *TileSharding::iota(*DeviceMap::uniform(3, 2), {6}, {6});
  EXPECT_THAT(message([&](auto& b) { b.add_tensor("x", DType::f32, {8}, three); }),
              HasSubstr("'x' names a rank that is not in a world"));
  EXPECT_EQ(message([&](auto& b) {
              b.add_tensor("w", DType::f32, {8}, *TileSharding::iota(*DeviceMap::uniform(2, 2), {4}, {4}));
            }),
            "");
  EXPECT_EQ(message([&](auto& b) { b.add_tensor("w", DType::f32, {8}, mesh, {Placement::replicate()}); }),
            "");
}

TEST(World, NeedsTheLayoutsOfItsRosterInOrder) {
  LayoutPtr a = layout_with([](auto& b) { b.add_object("a", Mesh::single(0)); });
  LayoutPtr b = layout_with([](auto& x) { x.add_object("b", Mesh::single(1)); });
  World world;
  world.roster = *Roster::make(std::vector<LayoutId>{a->id(), b->id()}, std::vector<uint32_t>{0, 0});
  for (std::vector<LayoutPtr> layouts : {std::vector{a}, {b, a}, {a, nullptr}, {a, b, b}}) {
    world.layouts = layouts;
    EXPECT_FALSE(validate_world(world).ok());
  }
  world.layouts = {a, b};
  EXPECT_TRUE(validate_world(world).ok());
}

TEST(Locator, NamesWhatIsNotThere) {
  LayoutPtr layout = layout_with([](auto& b) { b.add_value("v", DType::f32, {4}, Mesh::single(0)); });
  auto world = std::make_shared<World>(world_of({layout}));
  Locator locator(world, {});
  EXPECT_EQ(locator.value("w").status().code(), Code::not_found);
  EXPECT_EQ(locator.pieces("w", Box{}).status().code(), Code::not_found);
  EXPECT_EQ(locator.pieces("v", Box{}).status().code(), Code::invalid_argument);
  EXPECT_EQ(locator.plan_of(1).status().code(), Code::invalid_argument);
  EXPECT_EQ(locator.value("v")->shape, (Dims{4}));
}

}  // namespace
}  // namespace shoal::plan
