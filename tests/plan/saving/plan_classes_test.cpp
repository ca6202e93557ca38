// Plans that are moved from another rank of the class equal the plans that the rule makes.
#include "plan/saving/plan_classes.h"

#include "plan/saving/rank_plans.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/plan/test_worlds.h"

namespace shoal::plan {
namespace {

std::vector<size_t> digits_of(const SavePlan& plan) {
  std::vector<size_t> digits;
  for (const WriteItem& item : plan.items) {
    for (uint64_t offset : item.box.offsets) digits.push_back(std::to_string(offset).size());
  }
  return digits;
}

void check_rank_plans(const World& world, const SaveOptions& options) {
  RankPlans plans(std::make_shared<const World>(world), options);
  for (Rank rank = 0; rank <= world.roster.world_size(); ++rank) {
    const auto is = plans.plan(rank);
    const auto made = plan_save(world, rank, options);
    ASSERT_EQ(is.status(), made.status());
    if (!made.ok()) continue;
    EXPECT_EQ((*is)->rank, rank);
    EXPECT_EQ((*is)->id, made->id) << "rank " << rank;
    EXPECT_EQ(assignment_id_of(**is), assignment_id_of(*made)) << "rank " << rank;
    EXPECT_EQ((*is)->items.vector(), made->items.vector()) << "rank " << rank;
    EXPECT_EQ((*is)->files, made->files);
    EXPECT_EQ((*is)->tensor_bytes, made->tensor_bytes);
  }
}

// Returns how many ranks were not the first of their class.
size_t check_world(const World& world, const SaveOptions& options) {
  PlanClasses classes(world, options);
  std::map<Hash128, SavePlan> first;
  std::map<Hash128, std::vector<size_t>> texts;
  size_t shared = 0;
  for (Rank rank = 0; rank < world.roster.world_size(); ++rank) {
    const SavePlan plan = *plan_save(world, rank, options);
    EXPECT_EQ(classes.plan_of(rank).id, plan.id);
    const PlanClasses::Place place = classes.place_of(rank);
    auto [of_class, is_new] = first.try_emplace(place.plan, plan);
    if (!is_new) ++shared;
    EXPECT_EQ(of_class->second.tensor_bytes, plan.tensor_bytes);
    EXPECT_EQ(of_class->second.files, plan.files);
    EXPECT_EQ(classes.moved(of_class->second, rank), plan.items.vector()) << "rank " << rank;
    auto text = texts.try_emplace(place.text, digits_of(plan)).first;
    EXPECT_EQ(text->second, digits_of(plan)) << "rank " << rank;
    if (::testing::Test::HasFailure()) break;
  }
  return shared;
}

TEST(PlanClasses, MoveAPlanToEachRankOfItsClassInAnyWorld) {
  std::mt19937_64 random(31);
  size_t shared = 0;
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE("world " + std::to_string(i));
    const World world = random_world(random);
    SaveOptions options{static_cast<Dedupe>(random() % 3), uint64_t{1024} << (random() % 3)};
    shared += check_world(world, options);
    check_rank_plans(world, options);
    if (HasFailure()) return;
  }
  EXPECT_GT(shared, 100u);
}

// FSDP over 24 ranks that do not divide the rows, TP 2, two copies of all; norms are whole on each TP rank.
TEST(PlanClasses, AreFewWhereMeshesAreRegular) {
  const Mesh mesh = Mesh::contiguous({2, 24, 2});
  const auto copies = Placement::replicate();
  LayoutBuilder builder;
  for (int layer = 0; layer < 6; ++layer) {
    const std::string name = "layers." + std::to_string(layer);
    builder.add_tensor(name + ".w", DType::bf16, {1000, 64}, mesh,
                       {copies, Placement::strided_shard(0, 2), Placement::shard(0)});
    builder.add_tensor(name + ".v", DType::f32, {640, 64}, mesh,
                       {copies, Placement::shard(0), Placement::shard(1)});
    builder.add_tensor(name + ".norm", DType::f32, {96}, mesh, {copies, Placement::shard(0), copies});
  }
  const LayoutPtr layout = std::move(builder).build().value();
  std::vector<uint32_t> hosts;
  for (Rank rank = 0; rank < 96; ++rank) hosts.push_back(rank / 8);
  const World world{Roster::make(std::vector<LayoutId>(96, layout->id()), hosts).value(), {layout}};
  for (Dedupe dedupe : {Dedupe::balanced, Dedupe::lowest_rank, Dedupe::none}) {
    EXPECT_GT(check_world(world, {dedupe}), 70u) << static_cast<int>(dedupe);
  }
}

// As many shapes as tensors: no table is made of them.
TEST(RankPlans, AreThoseOfTheRuleWhereEachTensorHasAShapeOfItsOwn) {
  const Mesh mesh = Mesh::contiguous({4});
  LayoutBuilder builder;
  for (uint64_t i = 0; i < 300; ++i) {
    builder.add_tensor("layers." + std::to_string(i), DType::f32, {i + 4, 8}, mesh, {Placement::shard(0)});
  }
  World world;
  world.layouts = {std::move(builder).build().value()};
  world.roster =
      Roster::make(std::vector<LayoutId>(4, world.layouts[0]->id()), std::vector<uint32_t>{0, 0, 1, 1})
          .value();
  check_rank_plans(world, {});
}

TEST(RankPlans, RefuseOptionsThatTheRuleRefuses) {
  std::mt19937_64 random(7);
  check_rank_plans(random_world(random), {Dedupe::balanced, 1});
}

}  // namespace
}  // namespace shoal::plan
