#include "shoal/mesh.h"

#include <gmock/gmock.h>

#include <random>

#include "plan/geometry/rank_set.h"
#include "shoal/layout.h"

namespace shoal::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Mesh, FindsTheAffineFormOfAList) {
  Mesh mesh = *Mesh::from_ranks({2, 3}, {4, 5, 6, 14, 15, 16});
  EXPECT_TRUE(mesh.is_affine());
  EXPECT_EQ(mesh.base(), 4u);
  EXPECT_THAT(mesh.strides(), ElementsAre(10, 1));
  EXPECT_EQ(mesh, *Mesh::affine({2, 3}, 4, {10, 1}));
}

TEST(Mesh, IsTheSameHoweverItWasMade) {
  EXPECT_EQ(*Mesh::from_ranks({2, 1, 4}, {0, 1, 2, 3, 4, 5, 6, 7}), Mesh::contiguous({2, 1, 4}));
  EXPECT_EQ(*Mesh::affine({1, 4}, 3, {77, 1}), Mesh::contiguous({1, 4}, 3));
  EXPECT_EQ(*Mesh::affine({2, 2}, 0, {3, 2}), *Mesh::from_ranks({2, 2}, {0, 2, 3, 5}));
  EXPECT_EQ(*Mesh::affine({2, 3}, 0, {3, 2}), *Mesh::from_ranks({2, 3}, {0, 2, 4, 3, 5, 7}));
}

TEST(Mesh, ListsRanksWhoseStridesDoNotNest) {
  Mesh mesh = *Mesh::affine({2, 3}, 0, {3, 2});
  EXPECT_FALSE(mesh.is_affine());
  EXPECT_EQ(mesh.coordinate_of(5), (Dims{1, 1}));
  EXPECT_EQ(mesh.coordinate_of(6), std::nullopt);
}

TEST(Mesh, RefusesWhatIsNoMesh) {
  EXPECT_THAT(Mesh::from_ranks({2}, {3, 3}).status().message(), HasSubstr("rank 3"));
  EXPECT_FALSE(Mesh::from_ranks({2}, {1, 2, 3}).ok());
  EXPECT_FALSE(Mesh::from_ranks({}, {}).ok());
  EXPECT_FALSE(Mesh::from_ranks({0}, {}).ok());
  EXPECT_FALSE(Mesh::affine({2, 2}, 0, {1, 1}).ok());
  EXPECT_FALSE(Mesh::affine({2}, 0, {0}).ok());
  EXPECT_FALSE(Mesh::affine({2}, 0xffffffff, {1}).ok());
  EXPECT_FALSE(Mesh::affine({1ull << 40}, 0, {1}).ok());
  EXPECT_FALSE(Mesh::affine({1ull << 32, 1ull << 32}, 0, {1, 1}).ok());
}

TEST(Mesh, KnowsTheCoordinateOfEveryRankAndOfNoOther) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 500; ++round) {
    Dims shape(1 + random() % 3);
    for (uint64_t& size : shape) size = 1 + random() % 4;
    std::vector<Rank> ranks(*element_count(shape));
    for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<Rank>(i * (1 + round % 3) + round % 5);
    if (round % 2 == 0) std::shuffle(ranks.begin(), ranks.end(), random);
    Mesh mesh = *Mesh::from_ranks(shape, ranks);
    ASSERT_EQ(mesh.ranks(), ranks);
    uint64_t found = 0;
    for (Rank rank = 0; rank < 250; ++rank) {
      if (auto coordinate = mesh.coordinate_of(rank)) {
        ++found;
        ASSERT_EQ(mesh.rank_at(*coordinate), rank);
      }
    }
    EXPECT_EQ(found, mesh.size());
  }
}

TEST(Mesh, SlicesAlongItsFreeDimensions) {
  Mesh mesh = Mesh::contiguous({2, 3, 4});
  EXPECT_EQ(mesh.slice(Dims{1, 2, 3}, {false, true, false}), *Mesh::from_ranks({3}, {15, 19, 23}));
  EXPECT_EQ(mesh.slice(Dims{1, 2, 3}, {true, false, true}), *Mesh::affine({2, 4}, 8, {12, 1}));
  EXPECT_EQ(mesh.slice(Dims{1, 2, 3}, {false, false, false}), Mesh::single(23));
}

TEST(RankSet, IsTheSameHoweverItWasMade) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 2000; ++round) {
    Dims shape(1 + random() % 3), strides(shape.size());
    for (size_t i = 0; i < shape.size(); ++i) shape[i] = 1 + random() % 4, strides[i] = 1 + random() % 30;
    Result<Mesh> mesh = Mesh::affine(shape, static_cast<Rank>(random() % 9), strides);
    if (!mesh.ok()) continue;
    std::vector<Rank> ranks = mesh->ranks();
    std::sort(ranks.begin(), ranks.end());
    RankSet set = RankSet::of_mesh(*mesh);
    ASSERT_EQ(set, RankSet::from_ascending(ranks));
    ASSERT_EQ(set.ranks(), ranks);
    ASSERT_EQ(set.size(), ranks.size());
    for (size_t i = 0; i < ranks.size(); ++i) ASSERT_EQ(set.nth(i), ranks[i]);
    uint64_t below = 0;
    for (Rank rank = 0; rank < 400; ++rank) {
      ASSERT_EQ(set.count_below(rank), below);
      bool is_in = std::binary_search(ranks.begin(), ranks.end(), rank);
      ASSERT_EQ(set.contains(rank), is_in);
      below += is_in;
    }
  }
}

TEST(RankSet, TellsDifferentSetsApart) {
  EXPECT_NE(RankSet::from_ascending({0, 1, 2}), RankSet::from_ascending({0, 1, 3}));
  EXPECT_NE(RankSet::from_ascending({0, 1}), RankSet::from_ascending({0, 2}));
  EXPECT_NE(RankSet::from_ascending({}), RankSet::from_ascending({0}));
}

Box rows(uint64_t begin, uint64_t end) {
  return {{begin}, {end - begin}};
}

TEST(Placement, ShardsAsTorchChunkDoes) {
  Mesh mesh = Mesh::contiguous({4});
  std::vector<Placement> placements{Placement::shard(0)};
  EXPECT_THAT(shards_at(Dims{10}, mesh, placements, Dims{0}).boxes, ElementsAre(rows(0, 3)));
  EXPECT_THAT(shards_at(Dims{10}, mesh, placements, Dims{3}).boxes, ElementsAre(rows(9, 10)));
  EXPECT_THAT(shards_at(Dims{5}, mesh, placements, Dims{2}).boxes, ElementsAre(rows(4, 5)));
  LocalShards none = shards_at(Dims{5}, mesh, placements, Dims{3});
  EXPECT_THAT(none.boxes, IsEmpty());
  EXPECT_THAT(none.local_shape, ElementsAre(0));
}

TEST(Placement, ShardsOneDimensionOverSeveralMeshDimensionsFromLeftToRight) {
  Mesh mesh = Mesh::contiguous({2, 3});
  std::vector<Placement> placements{Placement::shard(0), Placement::shard(0)};
  EXPECT_THAT(shards_at(Dims{10}, mesh, placements, Dims{1, 2}).boxes, ElementsAre(rows(9, 10)));
}

TEST(Placement, StridedShardsHoldAChunkOfEveryChunk) {
  // FSDP2 over TP: the tensor is first cut for TP (split factor 2), each part then over data parallel ranks.
  Mesh mesh = Mesh::contiguous({2, 2});
  std::vector<Placement> placements{Placement::strided_shard(0, 2), Placement::shard(0)};
  EXPECT_THAT(shards_at(Dims{8}, mesh, placements, Dims{0, 0}).boxes, ElementsAre(rows(0, 2)));
  EXPECT_THAT(shards_at(Dims{8}, mesh, placements, Dims{0, 1}).boxes, ElementsAre(rows(4, 6)));
  EXPECT_THAT(shards_at(Dims{8}, mesh, placements, Dims{1, 0}).boxes, ElementsAre(rows(2, 4)));
  placements[1] = Placement::replicate();
  LocalShards held = shards_at(Dims{8}, mesh, placements, Dims{1, 0});
  EXPECT_THAT(held.boxes, ElementsAre(rows(2, 4), rows(6, 8)));
  EXPECT_THAT(held.local, ElementsAre(rows(0, 2), rows(2, 4)));
  EXPECT_THAT(held.local_shape, ElementsAre(4));
}

TEST(Mesh, OfAShapeThatIsNoneHasNoRanksAndSaysWhy) {
  for (const Dims& shape : {Dims{}, Dims{0}, Dims{3, 0}, Dims{1 << 25}, Dims{1ull << 63, 4}, Dims(100, 1)}) {
    const Mesh mesh = Mesh::contiguous(shape);
    EXPECT_EQ(mesh.status().code(), Code::invalid_argument);
    EXPECT_EQ(mesh.size(), 0u);
    EXPECT_TRUE(mesh.ranks().empty());
    EXPECT_FALSE(mesh.contains(0));
    LayoutBuilder builder;
    builder.add_tensor("w", DType::f32, {4}, mesh, std::vector<Placement>(mesh.dims()));
    builder.add_value("v", DType::f32, {}, mesh);
    EXPECT_EQ(std::move(builder).build().status().code(), Code::invalid_argument);
    LayoutBuilder object;
    object.add_object("o", mesh);
    EXPECT_EQ(std::move(object).build().status().code(), Code::invalid_argument);
  }
  EXPECT_NE(Mesh::contiguous({2}, ~Rank{0}).status().message(), "") << "a rank exceeds 32 bits";
  EXPECT_TRUE(Mesh::contiguous({2, 2}).status().ok());
}

TEST(Placement, OfAKindThatIsNoneIsRefused) {
  Placement placement;
  placement.kind = static_cast<Placement::Kind>(7);
  EXPECT_EQ(validate_placements(std::vector<Placement>{placement}, Mesh::contiguous({2}), Dims{4}).message(),
            "a placement has the unknown kind 7");
}

TEST(DType, ThatIsNoneIsRefusedByNumber) {
  const auto none = static_cast<DType>(99);
  EXPECT_EQ(dtype_name(none), "unknown dtype");
  EXPECT_EQ(dtype_bits(none), 0u);
  EXPECT_EQ(dtype_bytes(none).status(), Status(Code::invalid_argument, "dtype number 99 is unknown"));
  LayoutBuilder builder;
  builder.add_tensor("w", none, {4}, Mesh::contiguous({2}), {Placement::shard(0)});
  EXPECT_EQ(std::move(builder).build().status().code(), Code::invalid_argument);
}

TEST(Placement, IsRefusedWhereItDoesNotFit) {
  Mesh mesh = Mesh::contiguous({2, 2});
  auto message = [&](std::vector<Placement> placements) {
    return validate_placements(placements, mesh, Dims{4, 4}).message();
  };
  EXPECT_EQ(message({Placement::shard(1), Placement::replicate()}), "");
  EXPECT_NE(message({Placement::shard(1)}), "");
  EXPECT_NE(message({Placement::shard(2), Placement::replicate()}), "");
  EXPECT_NE(message({Placement::strided_shard(0, 0), Placement::replicate()}), "");
  EXPECT_NE(message({Placement::strided_shard(0, 1ull << 60), Placement::replicate()}), "");
  EXPECT_NE(message({Placement::strided_shard(0, 1 << 10), Placement::strided_shard(1, 1 << 10)}), "");
}

}  // namespace
}  // namespace shoal::plan
