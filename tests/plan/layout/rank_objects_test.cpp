// Per-rank objects: stated once in a layout that all ranks share, with a value per rank under its own name.
#include <gmock/gmock.h>

#include "plan/layout/codec.h"
#include "plan/reading/locate.h"
#include "shoal/metadata.h"
#include "shoal/save_plan.h"
#include "tests/plan/test_worlds.h"

namespace shoal::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A tensor over all ranks, and random state of each.
LayoutBuilder job(uint32_t ranks) {
  LayoutBuilder builder;
  builder.add_tensor("w", DType::f32, {1024, 8}, Mesh::contiguous({ranks}), {Placement::shard(0)});
  builder.add_rank_objects("rng");
  return builder;
}

std::vector<std::string> names_of(const World& world) {
  std::vector<std::string> names;
  for (const TensorMetadata& value : list_values(world)) names.push_back(value.fqn);
  return names;
}

TEST(RankObjects, LeaveAllRanksOneLayoutAndGiveEachAValue) {
  const World world = uniform_world(job(4), 4);
  EXPECT_EQ(world.layouts.size(), 1u);
  EXPECT_TRUE(check_coverage(world, {}).ok());
  EXPECT_THAT(names_of(world), ElementsAre("rng@rank0", "rng@rank1", "rng@rank2", "rng@rank3", "w"));
  for (Dedupe dedupe : {Dedupe::balanced, Dedupe::lowest_rank, Dedupe::none}) {
    for (Rank rank = 0; rank < 4; ++rank) {
      const SavePlan plan = *plan_save(world, rank, {dedupe, kDefaultUnitBytes});
      EXPECT_THAT(item_keys(*world.layouts[0], plan), ElementsAre("w", rank_fqn("rng", rank)));
      EXPECT_TRUE(plan.items[1].canonical);
    }
  }
}

TEST(RankObjects, AreFoundByNameFromAnywhereAndNobodyElseIs) {
  Locator locator(std::make_shared<World>(uniform_world(job(12), 12)), {});
  EXPECT_EQ(locator.value("rng@rank11")->kind, LayoutEntry::Kind::object);
  EXPECT_THAT(*locator.pieces("rng@rank11", {}), ElementsAre(StoredPiece{11, 0, Box{}}));
  for (const char* absent : {"rng", "rng@rank", "rng@rank12", "rng@rank03", "rng@rank3x", "rng@rank-1",
                             "@rank1", "rng@rank4294967297", "w@rank1", "rng@rank1@rank1"}) {
    EXPECT_EQ(locator.value(absent).status().code(), Code::not_found) << absent;
    EXPECT_EQ(locator.pieces(absent, {}).status().code(), Code::not_found) << absent;
  }
}

TEST(RankObjects, ExistForTheRanksWhoseLayoutHasThem) {
  LayoutBuilder with, without;
  const Mesh all = Mesh::contiguous({4});
  for (LayoutBuilder* builder : {&with, &without}) {
    builder->add_tensor("w", DType::f32, {8}, all, {Placement::shard(0)});
  }
  with.add_rank_objects("rng");
  const LayoutPtr has = *std::move(with).build(), lacks = *std::move(without).build();
  const auto world = std::make_shared<World>(world_of({lacks, has, has, lacks}));
  EXPECT_TRUE(check_coverage(*world, {}).ok());
  EXPECT_THAT(names_of(*world), ElementsAre("rng@rank1", "rng@rank2", "w"));
  Locator locator(world, {});
  EXPECT_TRUE(locator.value("rng@rank2").ok());
  EXPECT_FALSE(locator.value("rng@rank3").ok());
  EXPECT_EQ(find_value(*world, "rng@rank0"), nullptr);
  EXPECT_NE(find_value(*world, "rng@rank1"), nullptr);
  EXPECT_EQ(plan_save(*world, 0, {})->items.size(), 1u);
}

TEST(RankObjects, StandBesideAValueOfTheBareName) {
  LayoutBuilder builder = job(2);
  builder.add_value("rng", DType::u8, {3}, Mesh::contiguous({2}));
  EXPECT_THAT(names_of(uniform_world(std::move(builder), 2)),
              ElementsAre("rng", "rng@rank0", "rng@rank1", "w"));
}

Status validity(const std::vector<LayoutPtr>& by_rank) {
  std::vector<LayoutId> ids;
  World world;
  for (const LayoutPtr& layout : by_rank) {
    ids.push_back(layout->id());
    if (world.layouts.empty() || world.layouts.back() != layout) world.layouts.push_back(layout);
  }
  world.roster = *Roster::make(ids, std::vector<uint32_t>(ids.size(), 0));
  return validate_world(world);
}

TEST(RankObjects, AreRefusedWhereAnotherValueHasOneOfTheirNames) {
  LayoutBuilder clashing = job(2), far = job(2), other;
  clashing.add_object("rng@rank1", Mesh::contiguous({2}));
  far.add_object("rng@rank2", Mesh::contiguous({2}));
  const LayoutPtr both = *std::move(clashing).build(), fine = *std::move(far).build();
  EXPECT_THAT(validity({both, both}).message(),
              HasSubstr("'rng@rank1' is the name of a value and of rank 1's per-rank value"));
  EXPECT_TRUE(validity({fine, fine}).ok());
  other.add_object("rng@rank", Mesh::contiguous({2}));
  EXPECT_THAT(validity({*job(2).build(), *std::move(other).build()}).message(),
              HasSubstr("'rng@rank' is one value on some ranks and a per-rank value on others"));
}

TEST(AWorld, IsRefusedNamingTheRanksThatStateAValueInDifferentWays) {
  LayoutBuilder one = job(2), other = job(2);
  one.add_value("v", DType::f32, {4}, Mesh::contiguous({2}));
  other.add_value("v", DType::bf16, {4}, Mesh::contiguous({2}));
  EXPECT_THAT(
      validity({*std::move(one).build(), *std::move(other).build()}).message(),
      HasSubstr("'v' has different dtypes on different ranks: F32 of shape [4] on rank 0; BF16 of shape "
                "[4] on rank 1"));
}

TEST(RankObjects, AreRefusedWhereTheyMakeNoSense) {
  auto message = [](auto&& change) {
    LayoutEntry entry;
    entry.fqn = "x@rank";
    entry.kind = LayoutEntry::Kind::object;
    entry.sharding = RankSharding{};
    change(entry);
    return make_layout({}, {entry}).status().message();
  };
  EXPECT_EQ(message([](LayoutEntry&) {}), "");
  EXPECT_THAT(message([](LayoutEntry& e) { e.fqn = "x"; }), HasSubstr("'x': the name of"));
  EXPECT_THAT(message([](LayoutEntry& e) { e.fqn = "@rank"; }), HasSubstr("'@rank': the name of"));
  EXPECT_THAT(message([](LayoutEntry& e) { e.replicated = true; }), HasSubstr("cannot be replicated"));
  EXPECT_THAT(message([](LayoutEntry& e) { e.kind = LayoutEntry::Kind::tensor; }),
              HasSubstr("must be an object"));
  EXPECT_THAT(message([](LayoutEntry& e) { e.dtype = DType::f32; }), HasSubstr("dtype U8"));
  EXPECT_THAT(message([](LayoutEntry& e) { e.fqn = std::string(4085, 'x') + "@rank"; }), HasSubstr("4100"));
}

TEST(RankObjects, SurviveTheirEncodingUnderAnIdThatStays) {
  const LayoutPtr layout = *job(4).build();
  auto again = decode_layout(encode_layout(*layout));
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ((*again)->entries(), layout->entries());
  EXPECT_EQ(layout->id().to_hex(), "13b979e21e088195737af2933d30da30");
}

TEST(RankObjects, MakeNoPlanLongerWhateverTheNumberOfRanks) {
  size_t bytes = 0, items = 0;
  for (uint32_t ranks : {1u, 1000u, 10'000u, 100'000u}) {
    const World world = uniform_world(job(ranks), ranks);
    const SavePlan plan = *plan_save(world, ranks - 1, {});
    const size_t encoded = encode_layout(*world.layouts[0]).size();
    if (ranks == 1) bytes = encoded, items = plan.items.size();
    EXPECT_EQ(encoded, bytes);
    EXPECT_LE(plan.items.size(), items);
    EXPECT_TRUE(check_coverage(world, {}).ok());
  }
}

}  // namespace
}  // namespace shoal::plan
