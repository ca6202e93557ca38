#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/digest/digest.h"
#include "shoal/layout.h"
#include "storage/shards/json.h"
#include "storage/shards/shard_header.h"

namespace shoal::storage {

namespace {

constexpr uint64_t kMaxPayloadBytes = uint64_t{1} << 60;
static_assert(kMaxShardHeaderBytes + kLengthPrefixBytes > kShardDataAlignment);

void append_numbers(std::string* out, const Dims& numbers) {
  out->push_back('[');
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i != 0) out->push_back(',');
    fmt::format_to(std::back_inserter(*out), "{}", numbers[i]);
  }
  out->push_back(']');
}

Status invalid(const ShardPiece& piece, std::string_view what) {
  return Status(Code::invalid_argument, fmt::format("shard piece '{}': {}", piece.key, what));
}

Status validate_piece(const ShardPiece& piece, uint64_t offset) {
  SHOAL_RETURN_IF_ERROR(validate_shard_key(piece.key));
  SHOAL_RETURN_IF_ERROR(validate_fqn(piece.fqn));
  SHOAL_ASSIGN_OR_RETURN(uint64_t element_bytes, dtype_bytes(piece.dtype));
  if (piece.bytes > kMaxPayloadBytes - offset)
    return invalid(piece, "the shard would exceed the largest possible file");
  if (piece.is_object) {
    if (piece.dtype != DType::u8 || !piece.global_shape.empty() || piece.box.dims() != 0 ||
        !piece.box.offsets.empty()) {
      return invalid(piece, "an object must be U8, without shape and box");
    }
    return ok_status();
  }
  SHOAL_RETURN_IF_ERROR(validate_box(piece.box, piece.global_shape).with_context(piece.key));
  std::optional<uint64_t> elements = element_count(piece.box.sizes);
  if (!elements || *elements > kMaxPayloadBytes / element_bytes || piece.bytes != *elements * element_bytes) {
    return invalid(piece, fmt::format("{} bytes do not fit box {} of {}", piece.bytes, to_string(piece.box),
                                      dtype_name(piece.dtype)));
  }
  if (offset % element_bytes != 0) {
    return invalid(piece, fmt::format("data offset {} is not aligned to {}: put larger element types first",
                                      offset, dtype_name(piece.dtype)));
  }
  return ok_status();
}

Status validate_distinct_keys(const std::vector<ShardPiece>& pieces) {
  std::vector<std::string_view> keys;
  keys.reserve(pieces.size());
  for (const ShardPiece& piece : pieces) keys.push_back(piece.key);
  std::sort(keys.begin(), keys.end());
  auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice == keys.end()) return ok_status();
  return Status(Code::invalid_argument, fmt::format("shard key '{}' is listed twice", *twice));
}

// PyTorch's key, plus Shoal's global_shape and logical_fqn; objects have neither.
std::string sharding_info(const std::vector<ShardPiece>& pieces) {
  std::string out = "{";
  for (const ShardPiece& piece : pieces) {
    if (out.size() > 1) out.push_back(',');
    append_json_string(&out, piece.key);
    out += ":{\"saved_offsets\":";
    append_numbers(&out, piece.is_object ? Dims{0} : piece.box.offsets);
    if (!piece.is_object) {
      out += ",\"global_shape\":";
      append_numbers(&out, piece.global_shape);
    }
    if (piece.fqn != piece.key) {
      out += ",\"logical_fqn\":";
      append_json_string(&out, piece.fqn);
    }
    out.push_back('}');
  }
  out.push_back('}');
  return out;
}

std::string shoal_info(const std::vector<ShardPiece>& pieces) {
  std::string out = fmt::format("{{\"version\":{},\"objects\":[", kShardFormatVersion);
  bool first = true;
  for (const ShardPiece& piece : pieces) {
    if (!piece.is_object) continue;
    if (!first) out.push_back(',');
    first = false;
    append_json_string(&out, piece.key);
  }
  out += "]}";
  return out;
}

std::string user_json(const UserMetadata& user) {
  std::string out = "{";
  for (const auto& [key, value] : user) {
    if (out.size() > 1) out.push_back(',');
    append_json_string(&out, key);
    out.push_back(':');
    append_json_string(&out, value);
  }
  out.push_back('}');
  return out;
}

}  // namespace

Status validate_shard_key(std::string_view key) {
  if (key.empty() || key.size() > kMaxShardKeyBytes || key == "__metadata__" || !is_clean_utf8(key)) {
    return Status(
        Code::invalid_argument,
        fmt::format("a shard key must be 1 to {} bytes of UTF-8 without control characters, and not "
                    "'__metadata__'",
                    kMaxShardKeyBytes));
  }
  return ok_status();
}

Result<BuiltShardHeader> build_shard_header(const std::vector<ShardPiece>& pieces,
                                            const UserMetadataPtr& user) {
  BuiltShardHeader header;
  SHOAL_RETURN_IF_ERROR(validate_distinct_keys(pieces));
  for (const ShardPiece& piece : pieces) {
    SHOAL_RETURN_IF_ERROR(validate_piece(piece, header.payload_bytes));
    header.payload_bytes += piece.bytes;
    header.digests += base::digest_count(piece.bytes);
  }
  auto too_large = [&](uint64_t bytes) {
    return Status(Code::too_large,
                  fmt::format("the shard header takes {} bytes, but safetensors allows {}: use more files",
                              bytes, kMaxShardHeaderBytes));
  };
  if (header.digests > kMaxShardHeaderBytes / kDigestDigits) return too_large(header.digests * kDigestDigits);

  std::string json = "{\"__metadata__\":{\"format\":\"pt\",\"DCP_SHARDING_INFO\":";
  append_json_string(&json, sharding_info(pieces));
  json += ",\"shoal\":";
  append_json_string(&json, shoal_info(pieces));
  if (user && !user->empty()) {
    json += ",\"shoal_user\":";
    append_json_string(&json, user_json(*user));
  }
  json += ",\"shoal_digests\":\"";
  header.digests_at = kLengthPrefixBytes + json.size();
  json.append(header.digests * kDigestDigits, '0');
  json += "\"}";
  uint64_t offset = 0;
  for (const ShardPiece& piece : pieces) {
    json.push_back(',');
    append_json_string(&json, piece.key);
    fmt::format_to(std::back_inserter(json), ":{{\"dtype\":\"{}\",\"shape\":", dtype_name(piece.dtype));
    append_numbers(&json, piece.is_object ? Dims{piece.bytes} : piece.box.sizes);
    fmt::format_to(std::back_inserter(json), ",\"data_offsets\":[{},{}]}}", offset, offset + piece.bytes);
    offset += piece.bytes;
  }
  json.push_back('}');
  size_t unpadded = kLengthPrefixBytes + json.size();
  size_t padded = (unpadded + kShardDataAlignment - 1) / kShardDataAlignment * kShardDataAlignment;
  json.append(padded - unpadded, ' ');
  if (json.size() > kMaxShardHeaderBytes) return too_large(json.size());

  header.bytes.resize(padded);
  store_le64(header.bytes.data(), json.size());
  std::memcpy(header.bytes.data() + kLengthPrefixBytes, json.data(), json.size());
  return header;
}

void put_digest(BuiltShardHeader* header, uint64_t index, uint64_t digest) {
  SHOAL_CHECK(index < header->digests);
  static constexpr char digits[] = "0123456789abcdef";
  std::byte* to = header->bytes.data() + header->digests_at + index * kDigestDigits;
  for (size_t i = 0; i < kDigestDigits; ++i) {
    to[i] = static_cast<std::byte>(digits[(digest >> (4 * (kDigestDigits - 1 - i))) & 15]);
  }
}

}  // namespace shoal::storage
