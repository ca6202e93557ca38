#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>

#include "base/digest/digest.h"
#include "shoal/layout.h"
#include "storage/shards/json.h"
#include "storage/shards/shard_header.h"

namespace shoal::storage {

namespace {

constexpr size_t kMaxTokenBytes = 64;  // of the names that Shoal knows

Status corrupt(std::string what) {
  return Status(Code::corrupt, std::move(what));
}
Status of_key(const std::string& key, std::string_view what) {
  return corrupt(fmt::format("'{}': {}", key, what));
}

Status read_numbers(JsonReader& json, Dims* out) {
  SHOAL_RETURN_IF_ERROR(json.expect('['));
  out->clear();
  for (bool more = !json.take(']'); more;) {
    if (out->size() == kMaxDims) return json.error(fmt::format("more than {} dimensions", kMaxDims));
    SHOAL_RETURN_IF_ERROR(json.read_unsigned(&out->emplace_back()));
    SHOAL_RETURN_IF_ERROR(json.next(']', &more));
  }
  return ok_status();
}

// The strings of __metadata__, unescaped but not parsed yet.
struct MetadataTexts {
  std::optional<std::string> sharding, shoal, digests, user;
};

class Parser {
 public:
  Parser(std::string_view text, uint64_t data_bytes) : text_(text), data_bytes_(data_bytes) {}

  Result<ParsedShardHeader> parse() && {
    SHOAL_RETURN_IF_ERROR(parse_outer());
    if (!metadata_seen_) return corrupt("it has no '__metadata__': this is not a Shoal shard");
    for (auto [name, there] : {std::pair{"shoal", texts_.shoal.has_value()},
                               std::pair{"shoal_digests", texts_.digests.has_value()},
                               std::pair{"DCP_SHARDING_INFO", texts_.sharding.has_value()}}) {
      if (!there)
        return corrupt(fmt::format("its '__metadata__' has no '{}': this is not a Shoal shard", name));
    }
    SHOAL_RETURN_IF_ERROR(index_keys());
    SHOAL_RETURN_IF_ERROR(parse_shoal().with_context("shoal"));
    SHOAL_RETURN_IF_ERROR(parse_sharding().with_context("DCP_SHARDING_INFO"));
    SHOAL_RETURN_IF_ERROR(parse_digests());
    if (texts_.user) {
      SHOAL_ASSIGN_OR_RETURN(out_.user, parse_user_json(*texts_.user));
    }
    for (const ShardPiece& piece : pieces_) out_.pieces.add(piece);
    out_.pieces.sort();
    return std::move(out_);
  }

 private:
  Status parse_outer() {
    JsonReader json(text_);
    SHOAL_RETURN_IF_ERROR(json.expect('{'));
    std::string key;
    for (bool more = !json.take('}'); more;) {
      SHOAL_RETURN_IF_ERROR(json.read_string(&key, kMaxShardKeyBytes));
      SHOAL_RETURN_IF_ERROR(json.expect(':'));
      if (key == "__metadata__") {
        SHOAL_RETURN_IF_ERROR(parse_metadata(json).with_context("__metadata__"));
      } else {
        SHOAL_RETURN_IF_ERROR(parse_tensor(json, key));
      }
      SHOAL_RETURN_IF_ERROR(json.next('}', &more));
    }
    SHOAL_RETURN_IF_ERROR(json.expect_end());
    if (end_ != data_bytes_) {
      return corrupt(
          fmt::format("the tensors end at data byte {}, but the file ends at {}", end_, data_bytes_));
    }
    return ok_status();
  }

  Status parse_metadata(JsonReader& json) {
    if (metadata_seen_) return json.error("given twice");
    metadata_seen_ = true;
    SHOAL_RETURN_IF_ERROR(json.expect('{'));
    std::string name;
    for (bool more = !json.take('}'); more;) {
      SHOAL_RETURN_IF_ERROR(json.read_string(&name, kMaxShardKeyBytes));
      SHOAL_RETURN_IF_ERROR(json.expect(':'));
      std::optional<std::string>* wanted = name == "DCP_SHARDING_INFO" ? &texts_.sharding
                                           : name == "shoal"           ? &texts_.shoal
                                           : name == "shoal_digests"   ? &texts_.digests
                                           : name == "shoal_user"      ? &texts_.user
                                                                       : nullptr;
      if (wanted == nullptr) {
        SHOAL_RETURN_IF_ERROR(json.skip_string());
      } else {
        if (wanted->has_value()) return json.error(fmt::format("'{}' is given twice", name));
        const size_t most = wanted == &texts_.user ? kMaxUserJsonBytes : text_.size();
        SHOAL_RETURN_IF_ERROR(json.read_string(&wanted->emplace(), most));
      }
      SHOAL_RETURN_IF_ERROR(json.next('}', &more));
    }
    return ok_status();
  }

  // Fills dtype and bytes, and stores the shape from the file in box.sizes for now.
  Status parse_tensor(JsonReader& json, const std::string& key) {
    ShardPiece piece;
    if (!validate_shard_key(key).ok()) return json.error("a key is empty or holds control characters");
    piece.key = key;
    Dims offsets;
    bool has_dtype = false, has_shape = false, has_offsets = false;
    std::string name;
    SHOAL_RETURN_IF_ERROR(json.expect('{'));
    for (bool more = !json.take('}'); more;) {
      SHOAL_RETURN_IF_ERROR(json.read_string(&name, kMaxTokenBytes));
      SHOAL_RETURN_IF_ERROR(json.expect(':'));
      bool* seen = name == "dtype"          ? &has_dtype
                   : name == "shape"        ? &has_shape
                   : name == "data_offsets" ? &has_offsets
                                            : nullptr;
      if (seen == nullptr) return of_key(key, fmt::format("unknown field '{}'", name));
      if (std::exchange(*seen, true)) return of_key(key, fmt::format("'{}' is given twice", name));
      if (seen == &has_dtype) {
        std::string dtype;
        SHOAL_RETURN_IF_ERROR(json.read_string(&dtype, kMaxTokenBytes));
        auto known = dtype_from_name(dtype);
        if (!known.ok() || !dtype_bytes(*known).ok())
          return of_key(key, fmt::format("dtype '{}' is not known", dtype));
        piece.dtype = *known;
      } else {
        SHOAL_RETURN_IF_ERROR(read_numbers(json, seen == &has_shape ? &piece.box.sizes : &offsets));
      }
      SHOAL_RETURN_IF_ERROR(json.next('}', &more));
    }
    if (!has_dtype || !has_shape || !has_offsets)
      return of_key(key, "dtype, shape or data_offsets is missing");
    SHOAL_RETURN_IF_ERROR(place(&piece, offsets));
    pieces_.push_back(std::move(piece));
    return ok_status();
  }

  Status place(ShardPiece* piece, const Dims& offsets) {
    if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_bytes_) {
      return of_key(piece->key,
                    fmt::format("data_offsets are not a range within the {} data bytes", data_bytes_));
    }
    if (offsets[0] != end_) {
      return of_key(piece->key, fmt::format("data_offsets begin at {}, but the previous tensor ends at {}",
                                            offsets[0], end_));
    }
    piece->bytes = offsets[1] - offsets[0];
    uint64_t element_bytes = *dtype_bytes(piece->dtype);
    std::optional<uint64_t> elements = element_count(piece->box.sizes);
    if (!elements || *elements > data_bytes_ / element_bytes || *elements * element_bytes != piece->bytes) {
      return of_key(piece->key, fmt::format("{} bytes do not match its shape and dtype", piece->bytes));
    }
    if (offsets[0] % element_bytes != 0) return of_key(piece->key, "the data is not aligned to its dtype");
    digests_ += base::digest_count(piece->bytes);
    end_ = offsets[1];
    return ok_status();
  }

  Status index_keys() {
    by_key_.resize(pieces_.size());
    std::iota(by_key_.begin(), by_key_.end(), 0u);
    const auto& pieces = pieces_;
    std::sort(by_key_.begin(), by_key_.end(),
              [&](uint32_t a, uint32_t b) { return pieces[a].key < pieces[b].key; });
    for (size_t i = 1; i < by_key_.size(); ++i) {
      const std::string& key = pieces[by_key_[i]].key;
      if (key == pieces[by_key_[i - 1]].key) return of_key(key, "is given twice");
    }
    return ok_status();
  }

  ShardPiece* find(std::string_view key) {
    auto& pieces = pieces_;
    auto found = std::lower_bound(by_key_.begin(), by_key_.end(), key,
                                  [&](uint32_t a, std::string_view b) { return pieces[a].key < b; });
    return found == by_key_.end() || pieces[*found].key != key ? nullptr : &pieces[*found];
  }

  Status parse_shoal() {
    JsonReader json(*texts_.shoal);
    std::string name;
    uint64_t version = 0;
    SHOAL_RETURN_IF_ERROR(json.expect('{'));
    SHOAL_RETURN_IF_ERROR(json.read_string(&name, kMaxTokenBytes));
    if (name != "version") return json.error("'version' expected first");
    SHOAL_RETURN_IF_ERROR(json.expect(':'));
    SHOAL_RETURN_IF_ERROR(json.read_unsigned(&version));
    if (version > kShardFormatVersion) {
      return Status(Code::version,
                    fmt::format("this file has format {}, but this program reads only formats up to {}",
                                version, kShardFormatVersion));
    }
    if (version != kShardFormatVersion) return json.error("this version does not exist");
    SHOAL_RETURN_IF_ERROR(json.expect(','));
    SHOAL_RETURN_IF_ERROR(json.read_string(&name, kMaxTokenBytes));
    if (name != "objects") return json.error("'objects' expected");
    SHOAL_RETURN_IF_ERROR(json.expect(':'));
    SHOAL_RETURN_IF_ERROR(json.expect('['));
    for (bool more = !json.take(']'); more;) {
      SHOAL_RETURN_IF_ERROR(json.read_string(&name, kMaxShardKeyBytes));
      ShardPiece* piece = find(name);
      if (piece == nullptr || piece->is_object || piece->dtype != DType::u8 || piece->box.dims() != 1) {
        return json.error("an object is not a U8 tensor of one dimension, or is listed twice");
      }
      piece->is_object = true;
      SHOAL_RETURN_IF_ERROR(json.next(']', &more));
    }
    SHOAL_RETURN_IF_ERROR(json.expect('}'));
    return json.expect_end();
  }

  Status parse_sharding() {
    JsonReader json(*texts_.sharding);
    std::vector<bool> seen(pieces_.size());
    std::string key;
    size_t count = 0;
    SHOAL_RETURN_IF_ERROR(json.expect('{'));
    for (bool more = !json.take('}'); more; ++count) {
      SHOAL_RETURN_IF_ERROR(json.read_string(&key, kMaxShardKeyBytes));
      SHOAL_RETURN_IF_ERROR(json.expect(':'));
      ShardPiece* piece = find(key);
      if (piece == nullptr) return json.error("a key does not name a tensor of this file");
      size_t index = static_cast<size_t>(piece - pieces_.data());
      if (seen[index]) return of_key(key, "is given twice");
      seen[index] = true;
      SHOAL_RETURN_IF_ERROR(parse_sharding_of(json, piece));
      SHOAL_RETURN_IF_ERROR(json.next('}', &more));
    }
    SHOAL_RETURN_IF_ERROR(json.expect_end());
    if (count == pieces_.size()) return ok_status();
    auto missing = std::find(seen.begin(), seen.end(), false);
    return of_key(pieces_[static_cast<size_t>(missing - seen.begin())].key, "is missing");
  }

  Status parse_sharding_of(JsonReader& json, ShardPiece* piece) {
    Dims offsets, global_shape;
    bool has_offsets = false, has_shape = false, has_fqn = false;
    std::string name;
    SHOAL_RETURN_IF_ERROR(json.expect('{'));
    for (bool more = !json.take('}'); more;) {
      SHOAL_RETURN_IF_ERROR(json.read_string(&name, kMaxTokenBytes));
      SHOAL_RETURN_IF_ERROR(json.expect(':'));
      bool* seen = name == "saved_offsets"  ? &has_offsets
                   : name == "global_shape" ? &has_shape
                   : name == "logical_fqn"  ? &has_fqn
                                            : nullptr;
      if (seen == nullptr) return of_key(piece->key, fmt::format("unknown field '{}'", name));
      if (std::exchange(*seen, true)) return of_key(piece->key, fmt::format("'{}' is given twice", name));
      if (seen == &has_fqn) {
        SHOAL_RETURN_IF_ERROR(json.read_string(&piece->fqn, kMaxFqnBytes));
      } else {
        SHOAL_RETURN_IF_ERROR(read_numbers(json, seen == &has_offsets ? &offsets : &global_shape));
      }
      SHOAL_RETURN_IF_ERROR(json.next('}', &more));
    }
    if (!has_fqn) piece->fqn = piece->key;
    if (!validate_fqn(piece->fqn).ok()) return of_key(piece->key, "logical_fqn is not a valid name");
    if (piece->is_object) {
      if (offsets != Dims{0} || has_shape)
        return of_key(piece->key, "an object must have no place in a tensor");
      piece->box = Box{};
      return ok_status();
    }
    if (!has_offsets || !has_shape) return of_key(piece->key, "saved_offsets or global_shape is missing");
    piece->box.offsets = std::move(offsets);
    piece->global_shape = std::move(global_shape);
    Status box = validate_box(piece->box, piece->global_shape);
    return box.ok() ? box : of_key(piece->key, box.message());
  }

  Status parse_digests() {
    const std::string& text = *texts_.digests;
    if (text.size() % kDigestDigits != 0 || text.size() / kDigestDigits != digests_) {
      return corrupt(fmt::format("shoal_digests has {} hex digits, but {} digests of {} are expected",
                                 text.size(), digests_, kDigestDigits));
    }
    if (!shoal::storage::parse_digests(text, &out_.digests)) {
      return corrupt("shoal_digests must hold only lower-case hex digits");
    }
    return ok_status();
  }

  std::string_view text_;
  uint64_t data_bytes_;
  std::vector<ShardPiece> pieces_;
  std::vector<uint32_t> by_key_;  // their indices by ascending key
  ParsedShardHeader out_;
  MetadataTexts texts_;
  bool metadata_seen_ = false;
  uint64_t end_ = 0;      // end of the tensors so far
  uint64_t digests_ = 0;  // number of digests of the tensors so far
};

}  // namespace

Result<UserMetadata> parse_user_json(std::string_view text) {
  const auto parse = [&]() -> Result<UserMetadata> {
    JsonReader json(text);
    UserMetadata user;
    std::string key, value;
    SHOAL_RETURN_IF_ERROR(json.expect('{'));
    for (bool more = !json.take('}'); more;) {
      if (user.size() == kMaxUserKeys) return json.error(fmt::format("more than {} keys", kMaxUserKeys));
      SHOAL_RETURN_IF_ERROR(json.read_string(&key, kMaxUserKeyBytes));
      SHOAL_RETURN_IF_ERROR(json.expect(':'));
      SHOAL_RETURN_IF_ERROR(json.read_string(&value, kMaxUserMetadataBytes));
      if (!user.emplace(key, value).second) return of_key(key, "is given twice");
      SHOAL_RETURN_IF_ERROR(json.next('}', &more));
    }
    SHOAL_RETURN_IF_ERROR(json.expect_end());
    if (Status valid = validate_user_metadata(user); !valid.ok()) return corrupt(valid.message());
    return user;
  };
  auto user = parse();
  return user.ok() ? user : user.status().with_context("shoal_user");
}

Result<ParsedShardHeader> parse_shard_header(std::string_view json, uint64_t data_bytes) {
  if (auto plain = parse_plain_shard_header(json, data_bytes)) return std::move(*plain);
  return parse_general_shard_header(json, data_bytes);
}

Result<ParsedShardHeader> parse_general_shard_header(std::string_view json, uint64_t data_bytes) {
  return Parser(json, data_bytes).parse();
}

}  // namespace shoal::storage
