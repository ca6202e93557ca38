// Box algebra and planning. The world of the planning benchmarks has 2,000 tensors under FSDP with replicas,
// an object per rank, and up to 1,048,576 ranks. A rank's assignment is planned from the roster alone.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <vector>

#include "plan/layout/codec.h"
#include "plan/reading/locate.h"
#include "plan/saving/rank_plans.h"
#include "shoal/box.h"
#include "shoal/metadata.h"
#include "shoal/save_plan.h"

namespace shoal::plan {
namespace {

constexpr uint32_t kTensors = 2000;
constexpr uint32_t kRanksPerHost = 8;

// A grid of side x side boxes of a square.
std::vector<Box> grid(uint64_t side) {
  std::vector<Box> boxes;
  for (uint64_t row = 0; row < side; ++row) {
    for (uint64_t column = 0; column < side; ++column) boxes.push_back({{row * 8, column * 8}, {8, 8}});
  }
  return boxes;
}

void check_tiling_of_a_grid(benchmark::State& state) {
  const auto side = static_cast<uint64_t>(state.range(0));
  const std::vector<Box> boxes = grid(side);
  const Dims shape{side * 8, side * 8};
  for (auto _ : state) benchmark::DoNotOptimize(check_tiling(boxes, shape).ok());
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(boxes.size()));
}
BENCHMARK(check_tiling_of_a_grid)->Arg(8)->Arg(64)->Arg(256)->Unit(benchmark::kMicrosecond);

void intersect_boxes(benchmark::State& state) {
  const Box a{{16, 0, 32}, {64, 128, 64}}, b{{0, 64, 48}, {48, 128, 128}};
  for (auto _ : state) benchmark::DoNotOptimize(intersect(a, b));
}
BENCHMARK(intersect_boxes);

void place_runs_of_columns(benchmark::State& state) {  // the loop that places bytes
  const Box a{{0, 0}, {1024, 1024}}, b{{0, 512}, {1024, 1024}};
  for (auto _ : state) {
    uint64_t sum = 0;
    for_each_run(a, b, [&](uint64_t from, uint64_t to, uint64_t count) { sum += from + to + count; });
    benchmark::DoNotOptimize(sum);
  }
  state.SetItemsProcessed(state.iterations() * 1024);
}
BENCHMARK(place_runs_of_columns);

LayoutPtr layout_of(uint32_t ranks) {
  const uint32_t shards = std::min(ranks, 1024u);
  const Mesh mesh = Mesh::contiguous({ranks / shards, shards});
  LayoutBuilder builder;
  for (uint32_t i = 0; i < kTensors; ++i) {
    builder.add_tensor(fmt::format("layers.{}.weight", i), DType::bf16, {8192, 1024}, mesh,
                       {Placement::replicate(), Placement::shard(0)});
  }
  builder.add_rank_objects("rng");
  return std::move(builder).build().value();
}

World world_of(uint32_t ranks) {
  World world;
  world.layouts = {layout_of(ranks)};
  std::vector<LayoutId> layouts(ranks, world.layouts[0]->id());
  std::vector<uint32_t> hosts(ranks);
  for (Rank rank = 0; rank < ranks; ++rank) hosts[rank] = rank / kRanksPerHost;
  world.roster = Roster::make(layouts, hosts).value();
  return world;
}

void plan_a_rank(benchmark::State& state) {
  const auto ranks = static_cast<uint32_t>(state.range(0));
  const World world = world_of(ranks);
  Rank rank = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(plan_save(world, rank, SaveOptions{}).value().tensor_bytes);
    rank = (rank + 7919) % ranks;
  }
}
BENCHMARK(plan_a_rank)
    ->Arg(1)
    ->RangeMultiplier(16)
    ->Range(16, 1 << 20)
    ->Arg(100'000)
    ->Unit(benchmark::kMicrosecond);

// As the coordinator does, once it has the plan of a rank of the same class.
void plan_a_rank_like_another(benchmark::State& state) {
  const auto ranks = static_cast<uint32_t>(state.range(0));
  RankPlans plans(std::make_shared<const World>(world_of(ranks)), SaveOptions{});
  Rank rank = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(plans.plan(rank).value()->tensor_bytes);
    rank = (rank + 7919) % ranks;
  }
}
BENCHMARK(plan_a_rank_like_another)->Arg(16)->Arg(4096)->Arg(1 << 20)->Unit(benchmark::kMicrosecond);

void check_coverage_of_a_world(benchmark::State& state) {
  const World world = world_of(static_cast<uint32_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(check_coverage(world, SaveOptions{}).ok());
}
BENCHMARK(check_coverage_of_a_world)->RangeMultiplier(16)->Range(16, 1 << 20)->Unit(benchmark::kMicrosecond);

// The lookups of a loader: one tensor here, and an object of another rank.
void locate_a_piece(benchmark::State& state) {
  const auto ranks = static_cast<uint32_t>(state.range(0));
  Locator locator(std::make_shared<World>(world_of(ranks)), SaveOptions{});
  const std::string own = rank_fqn("rng", ranks - 1);
  for (auto _ : state) {
    benchmark::DoNotOptimize(locator.pieces("layers.7.weight", {{0, 0}, {8, 1024}}).value().size());
    benchmark::DoNotOptimize(locator.pieces(own, {}).value().size());
  }
}
BENCHMARK(locate_a_piece)->RangeMultiplier(16)->Range(16, 1 << 20)->Unit(benchmark::kMicrosecond);

void list_the_values_of_a_world(benchmark::State& state) {  // grows with ranks, not with ranks x tensors
  const World world = world_of(static_cast<uint32_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(list_values(world).size());
}
BENCHMARK(list_the_values_of_a_world)->RangeMultiplier(16)->Range(16, 1 << 20)->Unit(benchmark::kMicrosecond);

// Once per generation: later saves recognize the state dict without it (save_blocked_bench).
void build_a_layout_and_its_id(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(layout_of(16)->id());
}
BENCHMARK(build_a_layout_and_its_id)->Unit(benchmark::kMicrosecond);

// A world as in the manifest of a checkpoint.
struct StoredWorld {
  explicit StoredWorld(const std::vector<LayoutPtr>& of_ranks) {
    std::vector<LayoutId> ids;
    std::vector<uint32_t> hosts;
    for (uint32_t rank = 0; rank < of_ranks.size(); ++rank) {
      ids.push_back(of_ranks[rank]->id());
      hosts.push_back(rank / kRanksPerHost);
      layouts.push_back(encode_layout(*of_ranks[rank]));
    }
    roster = encode_roster(Roster::make(ids, hosts).value());
  }
  Bytes roster;
  std::vector<Bytes> layouts;
};

// Stage `rank` of a pipeline, with distinct names.
LayoutPtr stage_of(uint32_t rank, uint32_t tensors) {
  LayoutBuilder builder;
  for (uint32_t i = 0; i < tensors; ++i) {
    builder.add_tensor(fmt::format("model.layers.{:06}.mlp.weight", rank * tensors + i), DType::bf16,
                       {64, 1024}, Mesh::single(rank), {Placement::shard(0)});
  }
  return std::move(builder).build().value();
}

// The layout of a rank without a mesh: its own boxes.
LayoutPtr boxes_of(uint32_t rank, uint32_t tensors) {
  LayoutBuilder builder;
  for (uint32_t i = 0; i < tensors; ++i) {
    builder.add_tensor_boxes(fmt::format("model.layers.{:06}.mlp.weight", i), DType::bf16, {64, 1024},
                             {{rank, {{{rank, 0}, {1, 1024}}}}});
  }
  return std::move(builder).build().value();
}

// The cost to open a checkpoint of many tensors in addition to reading its manifest: with one layout for all
// ranks, and with a different layout per rank.
void look_into(benchmark::State& state, LayoutPtr (*layout)(uint32_t rank, uint32_t tensors)) {
  const auto ranks = static_cast<uint32_t>(state.range(0)), tensors = static_cast<uint32_t>(state.range(1));
  std::vector<LayoutPtr> of_ranks;
  for (uint32_t rank = 0; rank < ranks; ++rank) of_ranks.push_back(layout(rank, tensors));
  const StoredWorld stored(of_ranks);
  for (auto _ : state) {
    const auto world = decode_world({stored.roster, {stored.layouts.begin(), stored.layouts.end()}}).value();
    benchmark::DoNotOptimize(validate_world(*world).ok());
    benchmark::DoNotOptimize(list_values(*world).size());
  }
  state.SetItemsProcessed(state.iterations() * ranks * tensors);
}
void look_into_stages(benchmark::State& state) {
  look_into(state, stage_of);
}
void look_into_boxes(benchmark::State& state) {
  look_into(state, boxes_of);
}
BENCHMARK(look_into_stages)
    ->Args({1, 100'000})
    ->Args({16, 6250})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK(look_into_boxes)->Args({64, 6250})->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace shoal::plan
