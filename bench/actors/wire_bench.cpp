// Encoding and checked decoding of messages between nodes: the one report per host and save, and a roster.
#include <benchmark/benchmark.h>

#include "actors/messages/messages.h"

namespace shoal::actors {
namespace {

WireMessage report(uint32_t ranks) {
  wire::ShardsWritten written;
  written.key = {1, 1000, 1};
  for (Rank rank = 0; rank < ranks; ++rank) {
    written.plans.push_back({rank, PlanId{}});
    written.files.push_back({rank, 0, 4096 + 1024, Hash128{}, 1024});
  }
  return {RoleKind::shard_writer, RoleKind::coordinator,
          std::make_shared<const WireBody>(std::move(written))};
}

void encode_shards_written(benchmark::State& state) {
  const WireMessage message = report(static_cast<uint32_t>(state.range(0)));
  size_t bytes = 0;
  for (auto _ : state) bytes = encode_wire(message).size();
  state.counters["bytes"] = static_cast<double>(bytes);
}
BENCHMARK(encode_shards_written)->Arg(1)->Arg(8)->Arg(64);

void decode_shards_written(benchmark::State& state) {
  const Bytes bytes = encode_wire(report(static_cast<uint32_t>(state.range(0))));
  for (auto _ : state) {
    auto decoded = decode_wire(bytes);
    if (!decoded.ok()) state.SkipWithError(decoded.status().to_string().c_str());
    benchmark::DoNotOptimize(decoded);
  }
  state.counters["bytes"] = static_cast<double>(bytes.size());
}
BENCHMARK(decode_shards_written)->Arg(1)->Arg(8)->Arg(64);

}  // namespace
}  // namespace shoal::actors
