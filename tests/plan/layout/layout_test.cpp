#include "shoal/layout.h"

#include <gmock/gmock.h>

#include "shoal/bytes.h"
#include "shoal/metadata.h"
#include "shoal/roster.h"
#include "tests/plan/test_worlds.h"

namespace shoal::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DTypes, HaveTheNamesOfSafetensors) {
  for (uint8_t i = 0; i < kDTypeCount; ++i) {
    DType dtype = *dtype_from_number(i);
    EXPECT_EQ(*dtype_from_name(dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(dtype_name(DType::bf16), "BF16");
  EXPECT_EQ(*dtype_bytes(DType::c64), 8u);
  EXPECT_THAT(dtype_bytes(DType::f4).status().message(), HasSubstr("F4"));
  EXPECT_EQ(dtype_from_number(kDTypeCount).status().code(), Code::corrupt);
  EXPECT_EQ(dtype_from_name("F7").status().code(), Code::invalid_argument);
}

TEST(Layout, HasOneIdWhateverTheOrderOfAdding) {
  LayoutBuilder a, b;
  const Mesh x = Mesh::contiguous({4}), y = Mesh::contiguous({2, 2});
  a.add_tensor("m.w", DType::f32, {8, 4}, x, {kShard0});
  a.add_tensor("m.v", DType::f32, {8}, y, {Placement::replicate(), kShard0});
  b.add_tensor("m.v", DType::f32, {8}, y, {Placement::replicate(), kShard0});
  b.add_tensor("m.w", DType::f32, {8, 4}, x, {kShard0});
  LayoutPtr first = *std::move(a).build(), second = *std::move(b).build();
  EXPECT_EQ(first->id(), second->id());
  EXPECT_EQ(first->find("m.w"), 1u);
  EXPECT_EQ(first->find("m"), std::nullopt);
}

TEST(Layout, NamesWhatItRefuses) {
  auto message = [](auto&& add) {
    LayoutBuilder builder;
    add(builder);
    return std::move(builder).build().status().message();
  };
  const Mesh mesh = Mesh::contiguous({2});
  EXPECT_THAT(message([&](auto& b) { b.add_tensor("w", DType::f4, {2}, mesh, {kShard0}); }),
              HasSubstr("'w'"));
  EXPECT_THAT(message([&](auto& b) { b.add_tensor("w", DType::f32, {}, mesh, {kShard0}); }),
              HasSubstr("'w'"));
  EXPECT_THAT(message([&](auto& b) { b.add_tensor("w", DType::f32, {1ull << 62}, mesh, {kShard0}); }),
              HasSubstr("2^63"));
  EXPECT_THAT(message([&](auto& b) { b.add_tensor("", DType::f32, {2}, mesh, {kShard0}); }),
              HasSubstr("empty"));
  EXPECT_THAT(
      message([&](auto& b) { b.add_tensor(std::string("a\0b", 3), DType::f32, {2}, mesh, {kShard0}); }),
      HasSubstr("control"));
  EXPECT_THAT(message([&](auto& b) { b.add_tensor("__metadata__", DType::f32, {2}, mesh, {kShard0}); }),
              HasSubstr("safetensors"));
  EXPECT_THAT(message([&](auto& b) {
                b.add_tensor("w", DType::f32, {2}, mesh, {kShard0});
                b.add_object("w", mesh);
              }),
              HasSubstr("'w' is given twice"));
  EXPECT_THAT(message([&](auto& b) {
                b.add_tensor_boxes("w", DType::f32, {2}, {{0, {{{1}, {2}}}}});
              }),
              HasSubstr("rank 0"));
  EXPECT_THAT(message([&](auto& b) {
                b.add_tensor_boxes("w", DType::f32, {2}, {{0, {{{1}, {1}}, {{1}, {1}}}}});
              }),
              HasSubstr("twice"));
  EXPECT_THAT(message([&](auto& b) {
                b.add_tensor("v", DType::f64, {1ull << 59}, mesh, {kShard0});
                b.add_tensor("w", DType::f64, {1ull << 59}, mesh, {kShard0});
              }),
              HasSubstr("2^63"));
}

TEST(Layout, TakesOddNamesThatNeverBecomePaths) {
  for (const char* climbing : {"..", "../../etc/passwd", "a/../b", "a/..", "a\\..\\b"}) {
    EXPECT_EQ(validate_fqn(climbing).code(), Code::invalid_argument) << climbing;
  }
  for (const char* fine : {"/etc/passwd", "a..b", "...", "a/...", "..a/b", ".", "a//b"}) {
    EXPECT_TRUE(validate_fqn(fine).ok()) << fine;
  }
  EXPECT_TRUE(validate_fqn("größe").ok());
  EXPECT_TRUE(validate_fqn(std::string(kMaxFqnBytes, 'a')).ok());
}

TEST(Layout, NamesWhatItTakesForNoNameInOneLine) {
  auto message = [](std::string_view fqn) { return validate_fqn(fqn).message(); };
  EXPECT_THAT(message(""), HasSubstr("'': an fqn must not be empty"));
  EXPECT_THAT(message("a\xff"), HasSubstr("'a\\xff': "));
  EXPECT_THAT(message(std::string_view("a\0b\n", 4)), HasSubstr("'a\\x00b\\x0a': "));
  EXPECT_THAT(message(std::string(kMaxFqnBytes + 1, 'a')), HasSubstr("aaa…': this fqn has 4097 bytes"));
  EXPECT_THAT(message("__metadata__"), HasSubstr("'__metadata__': "));
}

TEST(Layout, AValueWithoutGroupGoesWithItsSiblings) {
  LayoutBuilder builder;
  const Mesh stage = Mesh::contiguous({2}, 4), other = Mesh::contiguous({2}, 6);
  builder.add_tensor("model.a.w", DType::f32, {8}, stage, {kShard0});
  builder.add_tensor("model.b.w", DType::f32, {8}, other, {kShard0});
  builder.add_value("model.a.step", DType::i64, {}, std::nullopt);
  builder.add_object("model.b.deep.er", std::nullopt);
  LayoutPtr layout = *std::move(builder).build();
  auto group_of = [&](const char* fqn) {
    const auto& sharding = layout->entries()[*layout->find(fqn)].sharding;
    return layout->meshes()[std::get<GroupSharding>(sharding).mesh];
  };
  EXPECT_EQ(group_of("model.a.step"), stage);
  EXPECT_EQ(group_of("model.b.deep.er"), other);
}

TEST(Layout, AValueWhoseSiblingsDisagreeOrAreMissingIsAnError) {
  for (const char* fqn : {"model.step", "step", "other.step"}) {
    LayoutBuilder builder;
    builder.add_tensor("model.a.w", DType::f32, {8}, Mesh::contiguous({2}), {kShard0});
    builder.add_tensor("model.b.w", DType::f32, {8}, Mesh::contiguous({2}, 2), {kShard0});
    builder.add_value(fqn, DType::i64, {}, std::nullopt);
    Status status = std::move(builder).build().status();
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_THAT(status.message(), HasSubstr(std::string("'") + fqn + "' has no group"));
  }
}

TEST(Layout, StatesTilesOfOneDeviceARankAsAMesh) {
  const DeviceMap devices = *DeviceMap::uniform(4, 2);
  LayoutBuilder tiles, mesh;
  tiles.add_tensor("a", DType::f32, {8, 4}, *TileSharding::tiled(devices, {2, 1, 2}, {0, 2, 5, 7}, true));
  tiles.add_tensor("b", DType::f32, {}, TileSharding::replicated(devices));
  mesh.add_tensor("a", DType::f32, {8, 4}, Mesh::contiguous({2, 1, 2}),
                  {Placement::shard(0), Placement::shard(1), Placement::replicate()});
  mesh.add_tensor("b", DType::f32, {}, Mesh::contiguous({4}), {Placement::replicate()});
  EXPECT_EQ((*std::move(tiles).build())->id(), (*std::move(mesh).build())->id());
}

TEST(Layout, PutsAValueBesideTilesOnAllRanksOfTheirDevices) {
  const DeviceMap devices = *DeviceMap::uniform(3, 2);
  LayoutBuilder builder;
  builder.add_tensor("opt.mu", DType::f32, {8}, *TileSharding::iota(devices, {6}, {6}));
  builder.add_tensor("opt.nu", DType::f32, {8}, *TileSharding::maximal(devices, 4));
  builder.add_value("opt.count", DType::i64, {}, std::nullopt);
  LayoutPtr layout = *std::move(builder).build();
  const LayoutEntry& count = layout->entries()[*layout->find("opt.count")];
  EXPECT_EQ(layout->meshes()[*mesh_of(count)], Mesh::contiguous({3}));
}

TEST(Layout, RefusesTilesThatMakeNoSense) {
  const Mesh mesh = Mesh::contiguous({2, 2});
  auto message = [&](Dims shape, uint32_t devices_per_rank, bool replicated = false) {
    LayoutEntry entry{"w",        LayoutEntry::Kind::tensor,          DType::f32, std::move(shape),
                      replicated, DeviceSharding{0, devices_per_rank}};
    return make_layout({mesh}, {entry}).status().message();
  };
  EXPECT_EQ(message({8}, 2), "");
  EXPECT_EQ(message({8, 8}, kMaxDevicesPerRank), "");
  EXPECT_THAT(message({8}, 1), HasSubstr("'w': it has 1 devices a rank"));
  EXPECT_THAT(message({8}, kMaxDevicesPerRank + 1), HasSubstr("devices a rank"));
  EXPECT_THAT(message({}, 2), HasSubstr("its tiles have 2 dimensions, and the tensor has 0"));
  EXPECT_THAT(message({8, 8, 8}, 2), HasSubstr("the tensor has 3"));
  EXPECT_THAT(message({8}, 2, true), HasSubstr("already determine"));
  LayoutBuilder builder;
  builder.add_tensor("w", DType::f32, {8}, *TileSharding::iota(*DeviceMap::uniform(2, 2), {2, 2}, {4}));
  EXPECT_THAT(std::move(builder).build().status().message(),
              HasSubstr("'w': a tile assignment of [2,2] does not fit a tensor of 1"));
}

TEST(Layout, SaysWhatARankHolds) {
  LayoutBuilder builder;
  const Mesh mesh = Mesh::contiguous({2});
  builder.add_tensor("w", DType::f32, {5, 2}, mesh, {kShard0});
  builder.add_value("v", DType::f32, {3}, mesh);
  builder.add_object("o", mesh);
  builder.add_rank_object("r", 1);
  builder.add_tensor("t", DType::f32, {5, 4},
                     *TileSharding::iota(*DeviceMap::uniform(2, 3), {3, 2}, {2, 3}, {1, 0}));
  builder.add_tensor_boxes("x", DType::f32, {9}, {{1, {{{5}, {4}}, {{0}, {2}}}}, {0, {{{2}, {3}}}}});
  LayoutPtr layout = *std::move(builder).build();
  auto boxes = [&](const char* fqn, Rank rank) {
    return layout->shards_of(layout->entries()[*layout->find(fqn)], rank).boxes;
  };
  EXPECT_THAT(boxes("w", 1), ElementsAre(Box{{3, 0}, {2, 2}}));
  EXPECT_THAT(boxes("w", 2), ElementsAre());
  EXPECT_THAT(boxes("v", 1), ElementsAre(Box{{0}, {3}}));
  EXPECT_THAT(boxes("o", 0), ElementsAre(Box{}));
  EXPECT_THAT(boxes("r@rank1", 1), ElementsAre(Box{}));
  EXPECT_THAT(boxes("r@rank1", 0), ElementsAre());
  EXPECT_THAT(boxes("t", 0), ElementsAre(Box{{0, 0}, {2, 2}}, Box{{2, 0}, {2, 2}}, Box{{4, 0}, {1, 2}}));
  EXPECT_THAT(boxes("t", 2), ElementsAre());
  EXPECT_THAT(boxes("x", 1), ElementsAre(Box{{5}, {4}}, Box{{0}, {2}}));
}

TEST(Roster, NumbersLayoutsAndHostsByTheirFirstRank) {
  LayoutId a = xxh3_128(as_view("a")), b = xxh3_128(as_view("b"));
  std::vector<LayoutId> layouts{b, b, a, b};
  std::vector<uint32_t> hosts{7, 7, 3, 3};
  Roster roster = *Roster::make(layouts, hosts);
  EXPECT_THAT(roster.layout_ids(), ElementsAre(b, a));
  EXPECT_THAT(roster.layout_runs(), ElementsAre(shoal::Run{2, 0}, shoal::Run{1, 1}, shoal::Run{1, 0}));
  EXPECT_THAT(roster.host_runs(), ElementsAre(shoal::Run{2, 0}, shoal::Run{2, 1}));
  EXPECT_EQ(roster.layout_of(3), 0u);
  EXPECT_EQ(roster.host_of(2), 1u);
}

TEST(Roster, RefusesPartsThatAreNotCanonical) {
  LayoutId a = xxh3_128(as_view("a")), b = xxh3_128(as_view("b"));
  auto code = [&](uint32_t size, std::vector<LayoutId> ids, std::vector<shoal::Run> layouts,
                  std::vector<shoal::Run> hosts) {
    return Roster::from_runs(size, ids, layouts, hosts).status().code();
  };
  EXPECT_EQ(code(4, {a, b}, {{2, 0}, {2, 1}}, {{4, 0}}), Code::ok);
  EXPECT_EQ(code(4, {a, b}, {{2, 1}, {2, 0}}, {{4, 0}}), Code::corrupt);
  EXPECT_EQ(code(4, {a, a}, {{2, 0}, {2, 1}}, {{4, 0}}), Code::corrupt);
  EXPECT_EQ(code(4, {a}, {{2, 0}, {2, 0}}, {{4, 0}}), Code::corrupt);
  EXPECT_EQ(code(4, {a}, {{4, 0}, {0, 1}}, {{4, 0}}), Code::corrupt);
  EXPECT_EQ(code(4, {a}, {{4, 0}}, {{3, 0}}), Code::corrupt);
  EXPECT_EQ(code(4, {a, b}, {{4, 0}}, {{4, 0}}), Code::corrupt);
  EXPECT_EQ(code(0, {}, {}, {}), Code::corrupt);
  EXPECT_EQ(code(1, {a}, {{0xffffffff, 0}, {2, 1}}, {{1, 0}}), Code::corrupt);
}

TEST(Metadata, NamesAnAttemptForPeople) {
  EXPECT_EQ(to_string(AttemptKey{3, 1000, 1}), "step 1000 (g3a1)");
}

}  // namespace
}  // namespace shoal::plan
