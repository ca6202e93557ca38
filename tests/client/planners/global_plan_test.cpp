// The default global plan, from which a collective save and a custom create_global_plan start.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "shoal/dcp/global_plan.h"

namespace shoal::dcp {
namespace {

using ::testing::HasSubstr;

WriteItem chunk(std::string fqn, Box box, Dims size, DType dtype = DType::f32) {
  return {
      {std::move(fqn), box.offsets}, WriteItemType::shard, TensorWriteData{box, {dtype}, std::move(size)}};
}
WriteItem object(std::string fqn) {
  return {{std::move(fqn)}, WriteItemType::byte_io};
}

TEST(GlobalPlan, GivesEachChunkToOneOfItsHoldersAndEvensTheLoad) {
  std::vector<SavePlan> plans(4);
  for (Rank rank = 0; rank < 4; ++rank) {
    for (int i = 0; i < 8; ++i)
      plans[rank].items.push_back(chunk(fmt::format("w{}", i), whole(Dims{100}), {100}));
    plans[rank].items.push_back(chunk("own", Box{{rank * 2ul}, {2}}, {8}));
    plans[rank].items.push_back(object("shared"));
    plans[rank].items.push_back(object("rng"));
    plans[rank].items.back().per_rank = true;
    plans[rank].planner_data = fmt::format("of {}", rank);
  }
  const GlobalSavePlan global = default_global_plan(plans).value();
  ASSERT_EQ(global.plans.size(), 4u);
  for (Rank rank = 0; rank < 4; ++rank) {
    uint64_t bytes = 0;
    for (const WriteItem& item : global.plans[rank].items) bytes += item.chunk_bytes();
    EXPECT_EQ(bytes, 808u);
    EXPECT_EQ(global.plans[rank].planner_data, fmt::format("of {}", rank));
  }
  EXPECT_EQ(global.metadata.state_dict_metadata.size(), 8u + 1 + 1 + 4);
  EXPECT_TRUE(global.metadata.state_dict_metadata.contains("rng@rank3"));
  const auto& own = std::get<TensorStorageMetadata>(global.metadata.state_dict_metadata.at("own"));
  EXPECT_EQ(own.chunks.size(), 4u);

  const GlobalSavePlan lowest = default_global_plan(plans, GlobalDedupe::lowest_rank).value();
  EXPECT_EQ(lowest.plans[0].items, plans[0].items);
  EXPECT_EQ(lowest.plans[3].items.size(), 2u) << "its own shard, and its own object";
}

TEST(GlobalPlan, RefusesWhatIsNoWholeCheckpoint) {
  const Box low{{0}, {4}}, high{{4}, {4}}, across{{3}, {3}};
  auto message = [](std::vector<SavePlan> plans) {
    return default_global_plan(std::move(plans)).status().message();
  };
  auto of = [](WriteItem item) { return SavePlan{{std::move(item)}, "", ""}; };
  EXPECT_EQ(message({of(chunk("x", low, {8})), of(chunk("x", high, {8}))}), "");
  EXPECT_EQ(message({of(chunk("x", low, {8}))}), "'x': no box covers [4:8]");
  EXPECT_THAT(message({of(chunk("x", low, {8})), of(chunk("x", across, {8})), of(chunk("x", high, {8}))}),
              HasSubstr("'x': boxes [0:4] and [3:6] overlap"));
  EXPECT_EQ(message({of(chunk("x", low, {8})), of(chunk("x", high, {9}))}),
            "'x': ranks 0 and 1 disagree on its shape");
  EXPECT_EQ(message({of(chunk("x", low, {8})), of(chunk("x", high, {8}, DType::f16))}),
            "'x': ranks 0 and 1 disagree on its dtype");
  EXPECT_EQ(message({of(chunk("x", low, {4})), of(object("x"))}), "'x': ranks 0 and 1 disagree on its type");
  EXPECT_THAT(message({SavePlan{}, SavePlan{{object("o"), object("o")}, "", ""}}),
              HasSubstr("the plan of rank 1: 'o' is given twice"));
}

TEST(GlobalPlan, SavesATensorWithoutElementsOnceAndNoChunkWithoutElementsOfAnother) {
  SavePlan plan{{chunk("none", Box{{0, 0}, {0, 4}}, {0, 4}), chunk("x", Box{{0}, {0}}, {4})}, "", ""};
  SavePlan other = plan;
  other.items[1] = chunk("x", whole(Dims{4}), {4});
  const GlobalSavePlan global = default_global_plan({plan, other}).value();
  ASSERT_EQ(global.plans[0].items.size(), 1u);
  EXPECT_EQ(global.plans[0].items[0].index.fqn, "none");
  ASSERT_EQ(global.plans[1].items.size(), 1u);
  EXPECT_EQ(global.plans[1].items[0].tensor_data->chunk, whole(Dims{4}));
}

// Random tilings, each tile on a random set of ranks: every element in exactly one plan, and by a rank that
// had it. Equal plans give equal answers.
TEST(GlobalPlan, CoversEveryElementOnceWhoeverHoldsIt) {
  std::mt19937_64 random(23);
  for (int round = 0; round < 300; ++round) {
    const uint32_t ranks = 1 + random() % 6;
    std::vector<SavePlan> plans(ranks);
    const uint64_t length = 1 + random() % 40;
    for (uint64_t at = 0; at < length;) {
      const uint64_t size = 1 + random() % (length - at);
      bool is_held = false;
      for (Rank rank = 0; rank < ranks; ++rank) {
        if (random() % 2 && (is_held || rank + 1 < ranks)) continue;
        plans[rank].items.push_back(chunk("x", Box{{at}, {size}}, {length}));
        is_held = true;
      }
      if (!is_held) plans[0].items.push_back(chunk("x", Box{{at}, {size}}, {length}));
      at += size;
    }
    const GlobalSavePlan global = default_global_plan(plans).value();
    std::vector<int> writers(length, 0);
    for (Rank rank = 0; rank < ranks; ++rank) {
      for (const WriteItem& item : global.plans[rank].items) {
        EXPECT_THAT(plans[rank].items, ::testing::Contains(item));
        const Box& box = item.tensor_data->chunk;
        for (uint64_t i = 0; i < box.sizes[0]; ++i) ++writers[box.offsets[0] + i];
      }
    }
    EXPECT_THAT(writers, ::testing::Each(1));
    EXPECT_EQ(default_global_plan(plans)->plans, global.plans);
  }
}

}  // namespace
}  // namespace shoal::dcp
