#include "shoal/save_plan.h"

#include <gmock/gmock.h>

#include <set>

#include "tests/plan/test_worlds.h"

namespace shoal::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(SavePlan, AShardedTensorIsWrittenByThoseThatHoldIt) {
  LayoutBuilder builder;
  builder.add_tensor("w", DType::f32, {6, 2}, Mesh::contiguous({4}), {kShard0});
  World world = uniform_world(std::move(builder), 4);
  SavePlan plan = *plan_save(world, 1, {});
  ASSERT_THAT(plan.items, SizeIs(1));
  EXPECT_EQ(plan.items[0].box, (Box{{2, 0}, {2, 2}}));
  EXPECT_EQ(plan.items[0].bytes, 16u);
  EXPECT_EQ(plan.tensor_bytes, 16u);
  EXPECT_EQ(plan.files, 1u);
  EXPECT_THAT(plan_save(world, 3, {})->items, IsEmpty());
  EXPECT_EQ(plan_save(world, 3, {})->files, 0u);
}

TEST(SavePlan, ReplicasDivideALargeTensorInContiguousRuns) {
  LayoutBuilder builder;
  builder.add_tensor("w", DType::u8, {16, 1024}, Mesh::contiguous({4}), {kReplicate});
  World world = uniform_world(std::move(builder), 4);
  SaveOptions options;
  options.unit_bytes = 2048;
  for (Rank rank = 0; rank < 4; ++rank) {
    SavePlan plan = *plan_save(world, rank, options);
    ASSERT_THAT(plan.items, SizeIs(1));
    EXPECT_EQ(plan.items[0].bytes, 4096u);
    EXPECT_EQ(plan.items[0].local_offset, plan.items[0].box.offsets[0] * 1024);
  }
}

TEST(SavePlan, UnitsGoToEveryHostBeforeASecondRankOfOne) {
  LayoutBuilder builder;
  builder.add_tensor("w", DType::u8, {2, 1024}, Mesh::contiguous({4}), {kReplicate});
  World world = uniform_world(std::move(builder), 4);
  SaveOptions options;
  options.unit_bytes = 1024;
  bool wrote[2] = {false, false};
  int writers = 0;
  for (Rank rank = 0; rank < 4; ++rank) {
    if (plan_save(world, rank, options)->items.empty()) continue;
    ++writers;
    wrote[rank / 2] = true;
  }
  // The rotation may begin with the second ranks, but two neighbours in the order lie on two hosts but once a
  // turn.
  EXPECT_EQ(writers, 2);
  EXPECT_TRUE(wrote[0] && wrote[1]);
}

TEST(SavePlan, WhatNothingProvesEqualIsWrittenWholeByOne) {
  LayoutBuilder builder;
  const Mesh mesh = Mesh::contiguous({4});
  builder.add_value("buffer", DType::f32, {1 << 20}, mesh);
  builder.add_object("rng", mesh, true);
  World world = uniform_world(std::move(builder), 4);
  SaveOptions options;
  options.unit_bytes = 1024;
  size_t items = 0;
  for (Rank rank = 0; rank < 4; ++rank) items += plan_save(world, rank, options)->items.size();
  EXPECT_EQ(items, 2u);
}

TEST(SavePlan, AValueOfSeveralMeshesIsTakenFromOne) {
  auto layout_of = [](Rank base) {
    LayoutBuilder builder;
    builder.add_tensor("norm", DType::f32, {8}, Mesh::contiguous({2}, base), {kShard0});
    return *std::move(builder).build();
  };
  World world = world_of({layout_of(0), layout_of(0), layout_of(2), layout_of(2)});
  std::vector<size_t> items;
  for (Rank rank = 0; rank < 4; ++rank) items.push_back(plan_save(world, rank, {})->items.size());
  EXPECT_THAT(items, ::testing::AnyOf(ElementsAre(1, 1, 0, 0), ElementsAre(0, 0, 1, 1)));
}

TEST(SavePlan, LowestRankWritesAllAndNoneMarksTheOthersAsAlternates) {
  LayoutBuilder builder;
  builder.add_tensor("w", DType::f32, {8}, Mesh::contiguous({2, 2}), {kReplicate, kShard0});
  World world = uniform_world(std::move(builder), 4);
  SaveOptions options{Dedupe::lowest_rank};
  EXPECT_THAT(plan_save(world, 1, options)->items, SizeIs(1));
  EXPECT_THAT(plan_save(world, 3, options)->items, IsEmpty());
  options.dedupe = Dedupe::none;
  EXPECT_TRUE(plan_save(world, 1, options)->items.at(0).canonical);
  EXPECT_FALSE(plan_save(world, 3, options)->items.at(0).canonical);
}

TEST(SavePlan, AnEmptyTensorIsWrittenOnceAndAScalarHasOneBox) {
  LayoutBuilder builder;
  builder.add_tensor("empty", DType::f32, {0, 4}, Mesh::contiguous({4}), {kShard0});
  builder.add_tensor("scalar", DType::f32, {}, Mesh::contiguous({4}), {kReplicate});
  World world = uniform_world(std::move(builder), 4);
  std::vector<Box> boxes;
  for (Rank rank = 0; rank < 4; ++rank) {
    SavePlan plan = *plan_save(world, rank, {});
    for (const WriteItem& item : plan.items) boxes.push_back(item.box);
  }
  EXPECT_THAT(boxes, ::testing::UnorderedElementsAre(Box{}, Box{{0, 0}, {0, 4}}));
}

TEST(SavePlan, PiecesOfATensorLieInDifferentFilesUntilTheLast) {
  std::vector<Box> boxes;
  for (uint64_t i = 0; i < 20; ++i) boxes.push_back({{2 * (19 - i)}, {2}});
  LayoutBuilder builder;
  builder.add_tensor_boxes("w", DType::f32, {40}, {{0, boxes}});
  builder.add_value("w#1", DType::f32, {}, Mesh::single(0));
  World world = uniform_world(std::move(builder), 1);
  SavePlan plan = *plan_save(world, 0, {});
  ASSERT_THAT(plan.items, SizeIs(21));
  EXPECT_EQ(plan.files, kMaxFilesPerRank);
  std::vector<std::string> keys = item_keys(*world.layouts[0], plan);
  EXPECT_EQ(keys[0], "w");
  EXPECT_EQ(keys[1], "w#1");
  EXPECT_EQ(plan.items[0].box, (Box{{0}, {2}}));
  EXPECT_EQ(plan.items[0].local_box, 19u);
  EXPECT_THAT(std::vector<std::string>(keys.end() - 5, keys.end()),
              ElementsAre("w", "w#1", "w#2", "w#3", "w#4"));
  // Staged before any roster is known, all lie in one file, beside the tensor whose name looks like a number.
  SavePlan held = plan_all_held(*world.layouts[0], 0);
  keys = item_keys(*world.layouts[0], held);
  EXPECT_EQ(keys[1], "w#2");
  EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()).size(), keys.size());
}

TEST(SavePlan, ItemsComeByElementSizeThenName) {
  LayoutBuilder builder;
  const Mesh mesh = Mesh::single(0);
  builder.add_tensor("a", DType::u8, {3}, mesh, {kShard0});
  builder.add_object("b", mesh);
  builder.add_tensor("c", DType::f64, {3}, mesh, {kShard0});
  builder.add_tensor("d", DType::f64, {3}, mesh, {kShard0});
  World world = uniform_world(std::move(builder), 1);
  EXPECT_THAT(item_keys(*world.layouts[0], *plan_save(world, 0, {})), ElementsAre("c", "d", "a", "b"));
}

TEST(SavePlan, NamesItsFiles) {
  EXPECT_EQ(shard_file_name(7, 0), "rank-00007.safetensors");
  EXPECT_EQ(shard_file_name(123456, 2), "rank-123456-2.safetensors");
}

TEST(SavePlan, OptionsHaveBounds) {
  EXPECT_TRUE(validate_options({}).ok());
  EXPECT_FALSE(validate_options({Dedupe::balanced, 1023}).ok());
  EXPECT_FALSE(validate_options({Dedupe::balanced, (1ull << 40) + 1}).ok());
  EXPECT_FALSE(validate_options({static_cast<Dedupe>(3), 1 << 20}).ok());
}

}  // namespace
}  // namespace shoal::plan
