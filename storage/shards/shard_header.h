// The header of a shard file, built from its pieces and parsed back. docs/reference/format.md, "Shards". Used
// by shard_file.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/bytes.h"
#include "shoal/status.h"
#include "storage/shards/shard_file.h"

namespace shoal::storage {

struct BuiltShardHeader {
  Bytes bytes;  // length prefix, JSON and padding: all that lies before the data; digests are zeros yet
  size_t digests_at = 0;
  uint64_t digests = 0;  // 16 hex digits each
  uint64_t payload_bytes = 0;
};
// Validates the pieces (Code::invalid_argument names the key); Code::too_large beyond safetensors' header
// limit. `user`, where there is any, is what validate_user_metadata takes.
Result<BuiltShardHeader> build_shard_header(const std::vector<ShardPiece>& pieces,
                                            const UserMetadataPtr& user = nullptr);
void put_digest(BuiltShardHeader* header, uint64_t index, uint64_t digest);

struct ParsedShardHeader {
  ShardPieces pieces;             // sorted
  std::vector<uint64_t> digests;  // of their blocks
  UserMetadata user;
};
// `json` is what follows the length prefix, padding included; `data_bytes` what follows that in the file.
// Validates all of it, with memory proportional to json. Errors do not name the file.
Result<ParsedShardHeader> parse_shard_header(std::string_view json, uint64_t data_bytes);
// The same, several times as fast, of text as build_shard_header writes it, byte for byte but for the
// padding, with names that need no escape. Of any other it makes nothing, right or wrong.
std::optional<ParsedShardHeader> parse_plain_shard_header(std::string_view json, uint64_t data_bytes);
// And of any text that parse_shard_header takes.
Result<ParsedShardHeader> parse_general_shard_header(std::string_view json, uint64_t data_bytes);
// The text of "shoal_user", unescaped: a JSON object of strings.
inline constexpr size_t kMaxUserJsonBytes = 8 * kMaxUserMetadataBytes;  // every byte escaped, and the rest
Result<UserMetadata> parse_user_json(std::string_view json);
// 16 lower-case hex digits each; false: something else.
bool parse_digests(std::string_view text, std::vector<uint64_t>* digests);

}  // namespace shoal::storage
