// The header of a shard file, built from its pieces and parsed back. docs/format.md, "Shards". Used by
// shard_file.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "storage/shard_file.h"

namespace shoal {

struct BuiltShardHeader {
  Bytes bytes;  // length prefix, JSON and padding: all that lies before the data; digests are zeros yet
  size_t digests_at = 0;
  uint64_t digests = 0;  // 16 hex digits each
  uint64_t payload_bytes = 0;
};
// Validates the pieces (Code::invalid_argument names the key); Code::too_large beyond safetensors' header
// limit.
Result<BuiltShardHeader> build_shard_header(const std::vector<ShardPiece>& pieces);
void put_digest(BuiltShardHeader* header, uint64_t index, uint64_t digest);

struct ParsedShardHeader {
  std::vector<ShardPiece> pieces;
  std::vector<uint64_t> offsets;       // from the first data byte
  std::vector<uint64_t> first_digest;  // index of each piece's first digest
  std::vector<uint64_t> digests;
  std::vector<uint32_t> by_key;  // piece indices by ascending key
};
// `json` is what follows the length prefix, padding included; `data_bytes` what follows that in the file.
// Validates all of it, with memory proportional to json. Errors do not name the file.
Result<ParsedShardHeader> parse_shard_header(std::string_view json, uint64_t data_bytes);

}  // namespace shoal
