// Parsing the header of a shard: the parser of the headers that Shoal writes, and the one of every valid
// header.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <string_view>
#include <vector>

#include "storage/shards/shard_header.h"

namespace shoal::storage {
namespace {

// Tensors of two dimensions with names as models have them.
BuiltShardHeader header_of(size_t tensors) {
  std::vector<ShardPiece> pieces;
  for (size_t i = 0; i < tensors; ++i) {
    ShardPiece piece;
    piece.key = piece.fqn = fmt::format("model.layers.{}.block_{}.attention.weight", i % 80, i);
    piece.dtype = DType::f32;
    piece.global_shape = {4096, 1024};
    piece.box = {{i % 8 * 512, 0}, {512, 1024}};
    piece.bytes = 512 * 1024 * 4;
    pieces.push_back(piece);
  }
  auto built = build_shard_header(pieces);
  SHOAL_CHECK(built.ok());
  for (uint64_t i = 0; i < built->digests; ++i) put_digest(&*built, i, i * 0x9e3779b97f4a7c15u);
  return std::move(*built);
}

template <class Parse>
void parse(benchmark::State& state, Parse&& parse_header) {
  const BuiltShardHeader header = header_of(static_cast<size_t>(state.range(0)));
  const std::string_view json = as_text(ByteView(header.bytes)).substr(8);
  for (auto _ : state) {
    auto parsed = parse_header(json, header.payload_bytes);
    SHOAL_CHECK(parsed && parsed->pieces.size() == static_cast<size_t>(state.range(0)));
    benchmark::DoNotOptimize(parsed);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * json.size()));
}

void parse_plain(benchmark::State& state) {
  parse(state, parse_plain_shard_header);
}
BENCHMARK(parse_plain)->Arg(100)->Arg(10'000);

void parse_general(benchmark::State& state) {
  parse(state, [](std::string_view json, uint64_t data_bytes) {
    auto parsed = parse_general_shard_header(json, data_bytes);
    SHOAL_CHECK(parsed.ok());
    return std::optional(std::move(*parsed));
  });
}
BENCHMARK(parse_general)->Arg(100)->Arg(10'000);

}  // namespace
}  // namespace shoal::storage
