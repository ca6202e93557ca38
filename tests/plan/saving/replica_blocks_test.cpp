// The windows of replica_check: the same for all replicas, small, and complete after twenty saves.
#include "plan/saving/replica_blocks.h"

#include <gmock/gmock.h>

#include <map>
#include <set>
#include <tuple>

#include "base/digest/digest.h"
#include "plan/layout/holdings.h"
#include "tests/plan/test_worlds.h"

namespace shoal::plan {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

const Placement kReplicated = Placement::replicate();
const Placement kRows = Placement::shard(0);

LayoutPtr layout_of(LayoutBuilder builder) {
  return std::move(builder).build().value();
}

uint64_t bytes_of(const std::vector<ReplicaBlock>& window) {
  uint64_t sum = 0;
  for (const ReplicaBlock& block : window) sum += block.end - block.begin;
  return sum;
}

TEST(ReplicaBlocks, TwentyWindowsHoldEachByteOnceAndNoneHoldsMoreThanATwentieth) {
  LayoutBuilder builder;
  const Mesh mesh = Mesh::contiguous({2, 2});
  builder.add_tensor("a", DType::f64, {3, 7}, mesh, {kReplicated, kRows});
  builder.add_tensor("b", DType::bf16, {1 << 21}, mesh, {kReplicated, kRows});
  builder.add_tensor("c", DType::f32, {1 << 20, 4}, mesh, {kReplicated, kReplicated});
  const ReplicaBlocks blocks(layout_of(std::move(builder)), 1);
  std::map<uint32_t, uint64_t> next;  // of each box: the first byte that no window had
  uint64_t sum = 0;
  for (uint32_t number = 0; number < kReplicaWindows; ++number) {
    const std::vector<ReplicaBlock> window = blocks.window(number);
    EXPECT_EQ(window, blocks.window(number + kReplicaWindows)) << "windows rotate";
    for (const ReplicaBlock& block : window) {
      EXPECT_EQ(block.begin, next[block.held]);
      EXPECT_LT(block.begin, block.end);
      EXPECT_EQ(block.begin / base::kDigestBlockBytes, (block.end - 1) / base::kDigestBlockBytes);
      EXPECT_EQ(block.end % blocks.held()[block.held].element_bytes, 0u);
      next[block.held] = block.end;
    }
    // Two streams, whose windows begin and end at whole elements.
    EXPECT_LE(bytes_of(window), blocks.bytes() / kReplicaWindows + 2 * 8);
    sum += bytes_of(window);
  }
  EXPECT_EQ(sum, blocks.bytes());
  for (uint32_t held = 0; held < blocks.held().size(); ++held) {
    EXPECT_EQ(next[held], blocks.held()[held].bytes) << held;
  }
}

TEST(ReplicaBlocks, OnlyWhatTheLayoutProvesIsCompared) {
  LayoutBuilder builder;
  const Mesh mesh = Mesh::contiguous({4});
  builder.add_tensor("sharded", DType::u8, {400}, mesh, {kRows});
  builder.add_tensor("one rank", DType::u8, {400}, Mesh::single(1), {kReplicated});
  builder.add_tensor("no element", DType::u8, {0, 4}, mesh, {kReplicated});
  builder.add_value("unproven", DType::u8, {400}, mesh);
  builder.add_object("object", mesh, true);
  builder.add_rank_objects("random state");
  builder.add_tensor_boxes("boxes", DType::u8, {400}, {{1, {Box{{0}, {400}}}}});
  EXPECT_THAT(ReplicaBlocks(layout_of(std::move(builder)), 1).held(), IsEmpty());
}

TEST(ReplicaBlocks, DeclaredReplicasAreCompared) {
  LayoutBuilder builder;
  builder.add_value("value", DType::u8, {400}, Mesh::contiguous({4}), true);
  builder.add_tensor_boxes("boxes", DType::u8, {400}, {{1, {Box{{0}, {100}}, Box{{100}, {0}}}}}, true);
  const ReplicaBlocks blocks(layout_of(std::move(builder)), 1);
  EXPECT_THAT(blocks.held(), SizeIs(2));
  EXPECT_EQ(blocks.bytes(), 500u);
  EXPECT_EQ(bytes_of(blocks.window(3)), 25u);
}

// Against Holdings, which knows the whole world.
TEST(ReplicaBlocks, EqualIdsAreThoseOfReplicas) {
  std::mt19937_64 random(7);
  size_t compared = 0;
  for (int i = 0; i < 300; ++i) {
    const World world = random_world(random);
    Holdings holdings(world, FqnIndex::of_world(world));
    // By fqn, box and bytes: the ids that ranks have, and for each id the ranks.
    std::map<std::tuple<std::string, Box, uint64_t>, std::map<Hash128, std::set<Rank>>> found;
    for (Rank rank = 0; rank < world.roster.world_size(); ++rank) {
      const ReplicaBlocks blocks(world.layouts[world.roster.layout_of(rank)], rank);
      for (uint32_t number = 0; number < kReplicaWindows; ++number) {
        for (const ReplicaBlock& block : blocks.window(number)) {
          found[{blocks.fqn_of(block), blocks.held()[block.held].box, block.begin}][blocks.id_of(block)]
              .insert(rank);
        }
      }
    }
    for (const auto& [place, ids] : found) {
      for (const auto& [id, ranks] : ids) {
        if (ranks.size() < 2) continue;
        ++compared;
        const uint32_t value = *holdings.index().find(std::get<0>(place));
        const Layout* first_layout = &world.layout_of(*ranks.begin());
        const LayoutEntry& first = first_layout->entries()[*first_layout->find(std::get<0>(place))];
        for (Rank rank : ranks) {
          const Layout& layout = world.layout_of(rank);
          const LayoutEntry& entry = layout.entries()[*layout.find(std::get<0>(place))];
          const std::vector<Box> boxes = layout.shards_of(entry, rank).boxes;
          EXPECT_TRUE(std::find(boxes.begin(), boxes.end(), std::get<1>(place)) != boxes.end());
          if (std::holds_alternative<BoxSharding>(entry.sharding)) {
            EXPECT_TRUE(entry.replicated && first.replicated);
            continue;
          }
          const Instance* instance =
              holdings.instance_of(holdings.value(value), entry, world.roster.layout_of(rank));
          const Instance* of_first =
              holdings.instance_of(holdings.value(value), first, world.roster.layout_of(*ranks.begin()));
          EXPECT_EQ(instance, of_first) << "nothing is proven between instances";
        }
      }
    }
  }
  EXPECT_GT(compared, 1000u);
}

TEST(ReplicaBlocks, RanksWithDifferentOtherValuesCutTheSameWindowsFromOneTensor) {
  const Mesh mesh = Mesh::contiguous({2, 2});
  LayoutBuilder builder;
  builder.add_tensor("norm", DType::u8, {1000}, mesh, {kReplicated, kReplicated});
  builder.add_tensor("w", DType::u8, {4001}, mesh, {kReplicated, kRows});
  const LayoutPtr layout = layout_of(std::move(builder));
  for (uint32_t number = 0; number < kReplicaWindows; ++number) {
    std::map<std::string, std::set<Hash128>> ids;
    for (Rank rank : {0u, 1u}) {
      const ReplicaBlocks blocks(layout, rank);
      for (const ReplicaBlock& block : blocks.window(number))
        ids[blocks.fqn_of(block)].insert(blocks.id_of(block));
    }
    EXPECT_THAT(ids["norm"], SizeIs(1)) << number;
    EXPECT_THAT(ids["w"], SizeIs(2)) << "ranks 0 and 1 hold different rows";
  }
}

TEST(ReplicaBlocks, ABlockHasTheNumberOfADigestBlockOfItsBox) {
  LayoutBuilder builder;
  builder.add_tensor("w", DType::u8, {40, 1 << 20}, Mesh::contiguous({2}), {kReplicated});
  const ReplicaBlocks blocks(layout_of(std::move(builder)), 0);
  const std::vector<ReplicaBlock> window = blocks.window(3);
  EXPECT_EQ(window, (std::vector<ReplicaBlock>{{0, 6 << 20, 7 << 20}, {0, 7 << 20, 8 << 20}}));
}

TEST(ReplicaBlocks, SuccessiveSavesHaveSuccessiveWindowsAndGenerationsBeginElsewhere) {
  for (uint32_t call = 1; call < 50; ++call) {
    EXPECT_EQ(replica_window_of(3, call + 1), (replica_window_of(3, call) + 1) % kReplicaWindows);
  }
  std::set<uint32_t> first;
  for (uint32_t generation = 1; generation <= kReplicaWindows; ++generation) {
    first.insert(replica_window_of(generation, 1));
  }
  EXPECT_THAT(first, SizeIs(kReplicaWindows));
}

}  // namespace
}  // namespace shoal::plan
