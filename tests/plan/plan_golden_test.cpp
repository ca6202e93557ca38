// Ids and plans that must never change under rule version 1: golden/plans.txt. A difference means that older
// checkpoints can no longer be read by arithmetic. A new rule gets a new version and a new golden file.
// SHOAL_UPDATE_GOLDEN=1 in the environment writes the file again.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "plan/layout/codec.h"
#include "shoal/save_plan.h"
#include "tests/plan/test_worlds.h"

namespace shoal::plan {
namespace {

const Placement kShard1 = Placement::shard(1);

// Two replicas, FSDP over two, TP over two, as FSDP2 and TP lay a transformer block out.
World hybrid_world() {
  LayoutBuilder builder;
  const Mesh mesh = Mesh::contiguous({2, 2, 2});
  builder.add_tensor("model.embed.weight", DType::bf16, {50, 16}, mesh,
                     {kReplicate, Placement::strided_shard(0, 2), kShard0});
  builder.add_tensor("model.attn.wo", DType::bf16, {16, 48}, mesh, {kReplicate, kShard0, kShard1});
  builder.add_tensor("model.norm.weight", DType::f32, {700}, mesh, {kReplicate, kShard0, kReplicate});
  builder.add_tensor("model.bias", DType::f32, {3}, mesh, {kReplicate, kShard0, kReplicate});
  builder.add_tensor("optim.exp_avg", DType::f32, {40, 64}, mesh, {kReplicate, kReplicate, kReplicate});
  builder.add_value("model.rotary", DType::f64, {8}, std::nullopt);
  builder.add_value("optim.step", DType::i64, {}, mesh, true);
  builder.add_tensor("model.empty", DType::f32, {0, 7}, mesh, {kReplicate, kShard0, kReplicate});
  builder.add_object("train.loader", mesh);
  for (Rank rank = 0; rank < 8; ++rank) builder.add_rank_object("rng", rank);
  return uniform_world(std::move(builder), 8, 4);
}

// Two stages of two ranks; embeddings tied between them, moments created by some ranks only, odd rank order.
World pipeline_world() {
  std::vector<LayoutPtr> layouts;
  for (Rank rank = 0; rank < 4; ++rank) {
    const Rank stage = rank / 2;
    const Mesh mesh = *Mesh::from_ranks({2}, {stage * 2 + 1, stage * 2});
    LayoutBuilder builder;
    builder.add_tensor("embed", DType::f32, {30, 5}, mesh, {kShard0});
    builder.add_tensor(fmt::format("stage{}.w", stage), DType::f16, {64, 64}, mesh, {kReplicate});
    if (rank != 2)
      builder.add_tensor(fmt::format("stage{}.lazy", stage), DType::u8, {2000}, mesh, {kReplicate});
    builder.add_value("step", DType::i64, {}, mesh);
    layouts.push_back(*std::move(builder).build());
  }
  return world_of(layouts, 1);
}

// Flat optimizer shards as explicit boxes: one list each rank, replicas declared for one tensor and not for
// another.
World flat_world() {
  std::vector<LayoutPtr> layouts;
  for (Rank rank = 0; rank < 3; ++rank) {
    LayoutBuilder builder;
    const uint64_t half = rank % 2;
    builder.add_tensor_boxes("master", DType::f32, {4, 1000}, {{rank, {{{half * 2, 0}, {2, 1000}}}}}, true);
    builder.add_tensor_boxes("buffer", DType::f64, {10}, {{rank, {{{half * 5}, {5}}}}});
    builder.add_tensor_boxes(
        "many", DType::u8, {60}, rank != 0 ? std::vector<RankBoxes>{} : [] {
          RankBoxes held{0, {}};
          for (uint64_t i = 0; i < 20; ++i) held.boxes.push_back({{3 * (19 - i)}, {3}});
          return std::vector<RankBoxes>{held};
        }());
    layouts.push_back(*std::move(builder).build());
  }
  return world_of(layouts, 1);
}

// Four ranks of two devices each, as JAX lays arrays out: replicas of a tile on one rank, on two, and on all;
// tiles that are short or empty; one array with one device a rank, which is a mesh.
World tiles_world() {
  const DeviceMap devices = *DeviceMap::uniform(4, 2);
  auto tiles = [&](Dims sizes, const Dims& reshape, const std::vector<uint32_t>& transpose, bool replicates) {
    return *TileSharding::iota(devices, std::move(sizes), reshape, transpose, replicates);
  };
  LayoutBuilder builder;
  builder.add_tensor("params.embed", DType::bf16, {50, 64}, tiles({4, 1, 2}, {2, 4}, {1, 0}, true));
  builder.add_tensor("params.head", DType::bf16, {64, 50}, tiles({2, 2, 2}, {8}, {}, true));
  builder.add_tensor("params.norm", DType::f32, {13}, tiles({8}, {8}, {}, false));
  builder.add_tensor("params.short", DType::f32, {3, 2}, tiles({8, 1}, {2, 2, 2}, {2, 1, 0}, false));
  builder.add_tensor("params.conv", DType::f32, {2, 3, 2, 3, 40},
                     tiles({1, 1, 2, 1, 2, 2}, {2, 4}, {1, 0}, true));
  builder.add_tensor("params.empty", DType::f32, {0, 7}, tiles({2, 4}, {8}, {}, false));
  builder.add_tensor("params.one", DType::f32, {9, 6}, *TileSharding::tiled(devices, {2, 2}, {7, 0, 3, 4}));
  builder.add_tensor("opt.mu", DType::f32, {40, 16}, TileSharding::replicated(devices));
  builder.add_tensor("opt.count", DType::i32, {}, *TileSharding::maximal(devices, 5));
  builder.add_value("opt.scale", DType::f32, {}, std::nullopt, true);
  return uniform_world(std::move(builder), 4, 2);
}

// Eight ranks: experts sharded over four, replicated over two; FSDP over four and TP over two, under which
// norms lie on two meshes of one name; buffers of all ranks that nothing proves equal.
World experts_world() {
  std::vector<LayoutPtr> layouts;
  for (Rank rank = 0; rank < 8; ++rank) {
    const Mesh both = Mesh::contiguous({4, 2}), fsdp = *Mesh::affine({4}, rank % 2, {2});
    const Mesh replicas = *Mesh::affine({2}, rank % 4, {4});
    const std::string expert = fmt::format("experts.{}", rank % 4);
    LayoutBuilder builder;
    builder.add_tensor("attn.wq", DType::bf16, {40, 26}, both, {Placement::strided_shard(0, 2), kShard0});
    builder.add_tensor("experts.all", DType::bf16, {8, 300}, Mesh::contiguous({2, 4}), {kReplicate, kShard0});
    builder.add_tensor(expert + ".w1", DType::f8_e4m3, {60, 40}, replicas, {kReplicate});
    builder.add_tensor(expert + ".w2", DType::f32, {33, 9}, replicas, {kShard0});
    builder.add_value(expert + ".step", DType::i64, {}, std::nullopt, true);
    builder.add_tensor("norm.weight", DType::f32, {333}, fsdp, {kShard0});
    builder.add_tensor("norm.bias", DType::f32, {1000}, fsdp, {kReplicate});
    builder.add_value("router.counts", DType::i32, {600}, Mesh::contiguous({8}));
    builder.add_rank_objects("rng");
    layouts.push_back(*std::move(builder).build());
  }
  return world_of(layouts, 4);
}

void print_plan(const World& world, Rank rank, const SaveOptions& options, std::string& out) {
  const SavePlan plan = *plan_save(world, rank, options);
  const Layout& layout = world.layout_of(rank);
  out += fmt::format("  rank {} plan {} bytes {} files {}\n", rank, plan.id.to_hex(), plan.tensor_bytes,
                     plan.files);
  const std::vector<std::string> keys = item_keys(layout, plan);
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const WriteItem& item = plan.items[i];
    const LayoutEntry& entry = layout.entries()[item.entry];
    out += fmt::format("    {} {} {} {} from box {} + {}{}\n", item.file, keys[i], dtype_name(entry.dtype),
                       to_string(item.box), item.local_box, item.local_offset,
                       item.canonical ? "" : " alternate");
  }
}

void print_world(const std::string& name, const World& world, std::string& out) {
  out += fmt::format("world {} roster {}\n", name, world.roster.id().to_hex());
  for (const LayoutPtr& layout : world.layouts) {
    out += fmt::format("  layout {} of {} bytes\n", layout->id().to_hex(), encode_layout(*layout).size());
  }
  for (const SaveOptions& options :
       {SaveOptions{}, SaveOptions{Dedupe::balanced, 1024}, SaveOptions{Dedupe::lowest_rank, 1024},
        SaveOptions{Dedupe::none, 1024}}) {
    out += fmt::format(" dedupe {} unit_bytes {}\n", static_cast<int>(options.dedupe), options.unit_bytes);
    for (Rank rank = 0; rank < world.roster.world_size(); ++rank) print_plan(world, rank, options, out);
  }
  // Of the other modes the ids: the items are those above.
  for (const SaveOptions& options : {SaveOptions{Dedupe::none, 1024, SaveMode::rank_local},
                                     SaveOptions{Dedupe::balanced, 1024, SaveMode::collective}}) {
    out += fmt::format(" mode {}\n", mode_name(options.mode));
    for (Rank rank = 0; rank < world.roster.world_size(); ++rank) {
      const SavePlan plan = *plan_save(world, rank, options);
      SaveOptions same = options;
      same.mode = SaveMode::collective_free;
      EXPECT_EQ(plan.items, plan_save(world, rank, same)->items);
      out += fmt::format("  rank {} plan {} share {}\n", rank, plan.id.to_hex(),
                         assignment_id_of(plan).to_hex());
    }
  }
}

TEST(PlanGolden, IdsAndPlansAreWhatTheyWere) {
  std::string text;
  print_world("hybrid", hybrid_world(), text);
  print_world("pipeline", pipeline_world(), text);
  print_world("flat", flat_world(), text);
  print_world("tiles", tiles_world(), text);
  print_world("experts", experts_world(), text);
  const std::string path = SHOAL_PLAN_GOLDEN "/plans.txt";
  if (std::getenv("SHOAL_UPDATE_GOLDEN")) std::ofstream(path) << text;
  std::stringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, golden.str());
}

}  // namespace
}  // namespace shoal::plan
