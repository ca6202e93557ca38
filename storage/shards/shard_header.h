// Builds the header of a shard file from its pieces, and parses it. docs/reference/format.md, "Shards". Used
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

// Before the JSON text: its length, little-endian.
inline constexpr size_t kLengthPrefixBytes = 8;
// A block's digest as hexadecimal text.
inline constexpr size_t kDigestDigits = 16;

struct BuiltShardHeader {
  Bytes bytes;  // everything before the data: length prefix, JSON and padding; the digests are zeros
  size_t digests_at = 0;
  uint64_t digests = 0;  // number of digests, kDigestDigits characters each
  uint64_t payload_bytes = 0;
};
// Validates the pieces: Code::invalid_argument names the key, Code::too_large if the header exceeds the limit
// of safetensors. `user`, if not null, must satisfy validate_user_metadata.
Result<BuiltShardHeader> build_shard_header(const std::vector<ShardPiece>& pieces,
                                            const UserMetadataPtr& user = nullptr);
void put_digest(BuiltShardHeader* header, uint64_t index, uint64_t digest);

struct ParsedShardHeader {
  ShardPieces pieces;             // sorted
  std::vector<uint64_t> digests;  // of the pieces' blocks
  UserMetadata user;
};
// `json` is the text after the length prefix, including padding; `data_bytes` is the number of bytes after it
// in the file. Validates everything, with memory proportional to `json`. Errors do not contain the file name.
Result<ParsedShardHeader> parse_shard_header(std::string_view json, uint64_t data_bytes);
// Several times as fast, but only for headers exactly as build_shard_header writes them, without names that
// need an escape; the padding may differ. nullopt for any other text, valid or not.
std::optional<ParsedShardHeader> parse_plain_shard_header(std::string_view json, uint64_t data_bytes);
// For every text that parse_shard_header accepts.
Result<ParsedShardHeader> parse_general_shard_header(std::string_view json, uint64_t data_bytes);
// Parses the unescaped text of "shoal_user": a JSON object of strings.
// with every byte escaped, and the punctuation
inline constexpr size_t kMaxUserJsonBytes = 8 * kMaxUserMetadataBytes;
Result<UserMetadata> parse_user_json(std::string_view json);
// Parses 16 lower-case hex digits per digest. false: the text is something else.
bool parse_digests(std::string_view text, std::vector<uint64_t>* digests);

}  // namespace shoal::storage
