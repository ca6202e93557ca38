// Ids and plans that must never change under rule version 1: golden/plans.txt. A difference means that
// checkpoints written before can no longer be read by arithmetic; a new rule gets a new version, and a golden
// file of its own. SHOAL_UPDATE_GOLDEN=1 in the environment writes the file anew.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "plan/codec.h"
#include "plan/save_plan.h"
#include "tests/plan/test_worlds.h"

namespace shoal {
namespace {

const Placement kReplicate = Placement::replicate();
const Placement kShard0 = Placement::shard(0);
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
}

TEST(PlanGolden, IdsAndPlansAreWhatTheyWere) {
  std::string text;
  print_world("hybrid", hybrid_world(), text);
  print_world("pipeline", pipeline_world(), text);
  print_world("flat", flat_world(), text);
  const std::string path = SHOAL_PLAN_GOLDEN "/plans.txt";
  if (std::getenv("SHOAL_UPDATE_GOLDEN")) std::ofstream(path) << text;
  std::stringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, golden.str());
}

}  // namespace
}  // namespace shoal
