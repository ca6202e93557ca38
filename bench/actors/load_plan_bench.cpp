// Planning a load: the time to compute what one rank reads, from checkpoints of 64 to 16,384 ranks with 2,000
// tensors under FSDP with replicas. "of_64" is the ratio to the time for 64 ranks: the cost that a larger
// writing world causes a reader.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <chrono>
#include <map>
#include <vector>

#include "actors/loader/read_plan.h"

namespace shoal::actors {
namespace {

constexpr uint32_t kTensors = 2000;
constexpr uint32_t kRanksPerHost = 8;
constexpr uint32_t kFilesPerRank = 4;
const Dims kShape{8192, 1024};

storage::Decision checkpoint_of(uint32_t ranks, Dedupe dedupe) {
  const uint32_t shards = std::min(ranks, 1024u);
  const Mesh mesh = Mesh::contiguous({ranks / shards, shards});
  LayoutBuilder builder;
  for (uint32_t i = 0; i < kTensors; ++i) {
    builder.add_tensor(fmt::format("layers.{}.weight", i), DType::bf16, kShape, mesh,
                       {Placement::replicate(), Placement::shard(0)});
  }
  auto world = std::make_shared<World>();
  world->layouts = {std::move(builder).build().value()};
  std::vector<LayoutId> layouts(ranks, world->layouts[0]->id());
  std::vector<uint32_t> hosts(ranks);
  for (Rank rank = 0; rank < ranks; ++rank) hosts[rank] = rank / kRanksPerHost;
  world->roster = Roster::make(layouts, hosts).value();
  storage::Manifest manifest;
  manifest.options.dedupe = dedupe;
  for (Rank rank = 0; rank < ranks; ++rank) {
    for (uint32_t file = 0; file < kFilesPerRank; ++file) {
      manifest.files.push_back({shard_file_name(rank, file), 4096, Hash128(), rank, file});
    }
  }
  manifest.world = std::move(world);
  return {{1, 1, 1}, {}, {}, 0, std::move(manifest)};
}

// The rows of one of 1024 readers: one stored piece per tensor, whichever rank wrote it.
local::LoadTargets targets_of(uint64_t reader) {
  local::LoadTargets targets;
  for (uint32_t i = 0; i < kTensors; ++i) {
    targets.push_back({fmt::format("layers.{}.weight", i),
                       LayoutEntry::Kind::tensor,
                       DType::bf16,
                       kShape,
                       {{{reader * 8, 0}, {8, 1024}}}});
  }
  return targets;
}

// range(0): ranks; range(1): dedupe.
void plan_a_load(benchmark::State& state) {
  static std::map<int64_t, double> seconds_of_64;  // by dedupe
  const auto decision = std::make_shared<const storage::Decision>(
      checkpoint_of(static_cast<uint32_t>(state.range(0)), static_cast<Dedupe>(state.range(1))));
  const auto begun = std::chrono::steady_clock::now();
  uint64_t reader = 0;
  for (auto _ : state) {
    StoredCheckpoint stored(decision);
    auto plan = plan_reads(stored, targets_of(reader));
    if (!plan.ok() || plan->reads.size() < kTensors) return state.SkipWithError("no plan");
    reader = (reader + 379) % 1024;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count() /
                         static_cast<double>(state.iterations());
  if (state.range(0) == 64) seconds_of_64[state.range(1)] = seconds;
  state.counters["of_64"] = seconds / seconds_of_64[state.range(1)];
  state.counters["us_a_tensor"] = seconds * 1e6 / kTensors;
}
BENCHMARK(plan_a_load)
    ->ArgsProduct({{64, 256, 1024, 4096, 16384}, {static_cast<int64_t>(Dedupe::balanced)}})
    ->ArgsProduct({{64, 256, 1024, 4096, 16384}, {static_cast<int64_t>(Dedupe::none)}})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace shoal::actors
