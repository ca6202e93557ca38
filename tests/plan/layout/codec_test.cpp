#include "plan/layout/codec.h"

#include <gmock/gmock.h>

#include <random>

#include "tests/plan/test_worlds.h"
#include "tests/random_edit.h"

namespace shoal::plan {
namespace {

LayoutPtr sample_layout() {
  LayoutBuilder builder;
  const Mesh mesh = Mesh::contiguous({2, 2}), listed = *Mesh::from_ranks({4}, {3, 0, 2, 1});
  builder.add_tensor("model.w", DType::bf16, {8, 6}, mesh,
                     {Placement::replicate(), Placement::strided_shard(1, 3)});
  builder.add_tensor("model.v", DType::f32, {8}, listed, {Placement::shard(0)});
  builder.add_value("model.step", DType::i64, {}, mesh, true);
  builder.add_object("model.extra", mesh);
  builder.add_tensor_boxes("flat", DType::f32, {10}, {{0, {{{0}, {4}}}}, {3, {{{4}, {5}}, {{9}, {1}}}}},
                           true);
  builder.add_tensor_boxes("scalar", DType::f32, {}, {{0, {Box{}}}});
  const DeviceMap devices = *DeviceMap::uniform(2, 3);
  builder.add_tensor("tiled", DType::f32, {8, 6},
                     *TileSharding::tiled(devices, {1, 3, 2}, {5, 0, 4, 2, 1, 3}, true));
  builder.add_tensor("model.tiled", DType::f32, {8}, *TileSharding::tiled(devices, {6}, {0, 1, 2, 3, 4, 5}));
  return *std::move(builder).build();
}

Roster sample_roster() {
  LayoutId a = xxh3_128(as_view("a")), b = xxh3_128(as_view("b"));
  return *Roster::make(std::vector<LayoutId>{a, a, b, a}, std::vector<uint32_t>{0, 1, 1, 2});
}

// Regression: replicate placements are structs of zeros, which take no bytes but count as read.
TEST(Codec, DecodesALayoutOfManyReplicatedTensors) {
  const Mesh mesh = *Mesh::from_ranks({2, 1, 2}, {0, 1, 2, 3});
  LayoutBuilder builder;
  for (int i = 0; i < 500; ++i) {
    builder.add_tensor(std::to_string(i) + ".weight", DType::f32, {4}, mesh,
                       std::vector(3, Placement::replicate()));
  }
  auto layout = std::move(builder).build();
  ASSERT_TRUE(layout.ok()) << layout.status().to_string();
  auto decoded = decode_layout(encode_layout(**layout));
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ((*decoded)->id(), (*layout)->id());
}

TEST(Codec, LayoutsAndRostersComeBackWhole) {
  LayoutPtr layout = sample_layout();
  LayoutPtr again = *decode_layout(encode_layout(*layout));
  EXPECT_EQ(again->entries(), layout->entries());
  EXPECT_EQ(again->meshes(), layout->meshes());
  EXPECT_EQ(again->id(), layout->id());
  EXPECT_EQ(layout->id(), xxh3_128(encode_layout(*layout)));
  Roster roster = sample_roster();
  Roster back = *decode_roster(encode_roster(roster));
  EXPECT_EQ(back.id(), roster.id());
  EXPECT_EQ(back.id(), xxh3_128(encode_roster(roster)));
  EXPECT_EQ(back.layout_runs(), roster.layout_runs());
  EXPECT_EQ(back.host_runs(), roster.host_runs());
}

TEST(Codec, ReadsBytesAtAnyAddress) {
  Bytes bytes = encode_layout(*sample_layout());
  bytes.insert(bytes.begin(), std::byte{0});
  EXPECT_TRUE(decode_layout(ByteView(bytes).subspan(1)).ok());
}

TEST(Codec, TakesALayoutOnTheWordOfItsIdAlone) {
  const LayoutPtr layout = sample_layout();
  const Bytes bytes = encode_layout(*layout);
  auto decoded = decode_layout(bytes, layout->id());
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ((*decoded)->entries(), layout->entries());
  EXPECT_EQ((*decoded)->meshes(), layout->meshes());
  EXPECT_EQ(encode_layout(**decoded), bytes);
  LayoutId other = layout->id();
  other.bytes[0] ^= std::byte{1};
  EXPECT_EQ(decode_layout(bytes, other).status().code(), Code::corrupt);
  const ByteView cut = ByteView(bytes).first(bytes.size() - 8);
  EXPECT_EQ(decode_layout(cut, xxh3_128(cut)).status().code(), Code::corrupt);
}

TEST(Codec, RefusesAllThatIsNotCanonical) {
  Bytes bytes = encode_layout(*sample_layout());
  Bytes longer = bytes;
  longer.resize(longer.size() + 8);
  EXPECT_EQ(decode_layout(longer).status().code(), Code::corrupt);
  EXPECT_EQ(decode_layout(ByteView(bytes).first(bytes.size() - 8)).status().code(), Code::corrupt);
  EXPECT_EQ(decode_layout(ByteView(bytes).first(bytes.size() - 1)).status().code(), Code::corrupt);
  EXPECT_EQ(decode_layout({}).status().code(), Code::corrupt);
}

// Whatever decodes must be canonical; nothing may crash, throw or take long.
template <class Decode, class Encode>
void mutate(const Bytes& good, uint64_t seed, Decode&& decode, Encode&& encode) {
  std::mt19937_64 random(seed);
  int decoded = 0;
  for (int round = 0; round < 20000; ++round) {
    Bytes bytes = good;
    edit_at_random(bytes, random);
    if (random() % 4 == 0) bytes.resize(std::max<size_t>(8, random() % (bytes.size() + 16)));
    auto result = decode(bytes);
    if (result.ok()) {
      ++decoded;
      ASSERT_EQ(encode(*result), bytes);
    } else {
      ASSERT_EQ(result.status().message().find('\n'), std::string::npos);
    }
  }
  EXPECT_GT(decoded, 0);  // such as another digit of an id or a name
}

TEST(Codec, MutatedLayoutsAreRefusedOrCanonical) {
  mutate(
      encode_layout(*sample_layout()), 6, [](const Bytes& b) { return decode_layout(b); },
      [](const LayoutPtr& layout) { return encode_layout(*layout); });
}

TEST(Codec, MutatedRostersAreRefusedOrCanonical) {
  mutate(
      encode_roster(sample_roster()), 7, [](const Bytes& b) { return decode_roster(b); },
      [](const Roster& roster) { return encode_roster(roster); });
}

TEST(Codec, PlansComeBackWholeAndFitTheirLayouts) {
  std::mt19937_64 random(20261122);
  for (int i = 0; i < 200; ++i) {
    const World world = random_world(random);
    SaveOptions options;
    options.dedupe = static_cast<Dedupe>(i % 3);
    options.unit_bytes = 4096;
    for (Rank rank = 0; rank < world.roster.world_size(); ++rank) {
      const SavePlan plan = *plan_save(world, rank, options);
      auto again = decode_plan(encode_plan(plan));
      ASSERT_TRUE(again.ok()) << again.status().to_string();
      EXPECT_EQ((*again)->items, plan.items);
      EXPECT_EQ((*again)->id, plan.id);
      EXPECT_EQ((*again)->tensor_bytes, plan.tensor_bytes);
      EXPECT_EQ((*again)->files, plan.files);
      const Status fits = check_plan(plan, world.layout_of(rank));
      EXPECT_TRUE(fits.ok()) << fits.to_string();
    }
  }
}

TEST(Codec, PlansThatDoNotFitALayoutAreRefusedByName) {
  const World world = uniform_world(
      [] {
        LayoutBuilder builder;
        builder.add_tensor("a", DType::f32, {8, 6}, Mesh::contiguous({2}), {Placement::shard(0)});
        builder.add_tensor("b", DType::bf16, {8}, Mesh::contiguous({2}), {Placement::shard(0)});
        builder.add_object("o", Mesh::contiguous({2}), true);
        return builder;
      }(),
      2);
  const Layout& layout = world.layout_of(1);
  const SavePlan good = *plan_save(world, 1, {});
  ASSERT_GE(good.items.size(), 2u);
  auto refusal = [&](auto&& change) {
    SavePlan bad = good;
    change(bad);
    return check_plan(bad, layout).message();
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(refusal([](SavePlan& plan) { plan.items[0].entry = 7; }),
              HasSubstr("entry 7, and the layout has 3"));
  EXPECT_THAT(refusal([](SavePlan& plan) { plan.items[0].local_box = 1; }), HasSubstr("'a'"));
  EXPECT_THAT(refusal([](SavePlan& plan) { plan.items[0].local_offset = 4; }), HasSubstr("'a'"));
  EXPECT_THAT(refusal([](SavePlan& plan) { plan.items[0].bytes += 4; }), HasSubstr("'a'"));
  EXPECT_THAT(refusal([](SavePlan& plan) { plan.items[0].box.offsets[0] = 0; }),
              HasSubstr("outside of the box that this rank"));
  EXPECT_THAT(refusal([](SavePlan& plan) { plan.items[0].box.sizes[1] = 7; }), HasSubstr("'a'"));
  EXPECT_THAT(refusal([](SavePlan& plan) { plan.items.insert(plan.items.begin(), plan.items[0]); }),
              HasSubstr("out of order"));
  EXPECT_THAT(refusal([](SavePlan& plan) { plan.layout_id = RosterId{}; }),
              HasSubstr("the plan is for layout"));
}

TEST(Codec, AnAssignmentIsTheSameUnderEveryRoster) {
  const World world = uniform_world(
      [] {
        LayoutBuilder builder;
        builder.add_tensor("a", DType::f32, {8, 6}, Mesh::contiguous({2}), {Placement::shard(0)});
        return builder;
      }(),
      2);
  auto plan = std::make_shared<const SavePlan>(*plan_save(world, 1, {}));
  const SavePlanPtr moved = under_roster(plan, xxh3_128(as_view("another")));
  EXPECT_EQ(assignment_id_of(*moved), assignment_id_of(*plan));
  EXPECT_NE(moved->id, plan->id);
  EXPECT_EQ(under_roster(moved, plan->roster_id)->id, plan->id);
  SavePlan less = *plan;
  less.items.clear();
  EXPECT_NE(assignment_id_of(less), assignment_id_of(*plan));
}

}  // namespace
}  // namespace shoal::plan
