// Fuzzes the header of a safetensors shard. Input: the number of data bytes that follow the header (UInt64),
// then its JSON.
#include <string_view>

#include "storage/shards/shard_header.h"
#include "tests/fuzz/fuzz_target.h"

using namespace shoal;

namespace {

bool same(const storage::ShardPiece& a, const storage::ShardPiece& b) {
  return a.key == b.key && a.fqn == b.fqn && a.dtype == b.dtype && a.is_object == b.is_object &&
         a.global_shape == b.global_shape && a.box == b.box && a.bytes == b.bytes;
}

void check_same(const storage::ParsedShardHeader& a, const storage::ParsedShardHeader& b) {
  SHOAL_CHECK(a.pieces.size() == b.pieces.size() && a.digests == b.digests);
  for (size_t i = 0; i < a.pieces.size(); ++i) {
    SHOAL_CHECK(same(a.pieces[i], b.pieces[i]));
    SHOAL_CHECK(a.pieces.offset(i) == b.pieces.offset(i));
    SHOAL_CHECK(a.pieces.first_digest(i) == b.pieces.first_digest(i));
    SHOAL_CHECK(a.pieces.find(a.pieces.key(i)) == i && b.pieces.find(a.pieces.key(i)) == i);
  }
}

// What was parsed can be built, and what was built parses to the same.
void check_round_trip(const storage::ParsedShardHeader& parsed, uint64_t data_bytes) {
  std::vector<storage::ShardPiece> pieces;
  for (const storage::ShardPiece& piece : parsed.pieces) pieces.push_back(piece);
  auto built = storage::build_shard_header(pieces);
  SHOAL_CHECK(built.ok());
  SHOAL_CHECK(built->payload_bytes == data_bytes);
  SHOAL_CHECK(built->digests == parsed.digests.size());
  for (uint64_t i = 0; i < built->digests; ++i) storage::put_digest(&*built, i, parsed.digests[i]);
  const std::string_view bytes(reinterpret_cast<const char*>(built->bytes.data()), built->bytes.size());
  auto again = storage::parse_shard_header(bytes.substr(8), data_bytes);
  SHOAL_CHECK(again.ok());
  check_same(*again, parsed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 8) return 0;
  const uint64_t data_bytes = load_le64(reinterpret_cast<const std::byte*>(data));
  const std::string_view json(reinterpret_cast<const char*>(data) + 8, size - 8);
  auto parsed = storage::parse_shard_header(json, data_bytes);
  if (parsed.ok()) check_round_trip(*parsed, data_bytes);
  // The quick way and the general one agree on all that the quick one takes.
  if (auto plain = storage::parse_plain_shard_header(json, data_bytes)) {
    auto general = storage::parse_general_shard_header(json, data_bytes);
    SHOAL_CHECK(general.ok());
    check_same(*plain, *general);
  }
  return 0;
}
