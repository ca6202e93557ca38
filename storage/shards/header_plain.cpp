// Parses headers exactly as build_shard_header writes them, in one pass. A file may list a hundred thousand
// tensors, and the first read of any of them waits for this. header_parse.cpp parses all other headers.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/digest/digest.h"
#include "shoal/layout.h"
#include "storage/shards/json.h"
#include "storage/shards/shard_header.h"

namespace shoal::storage {

namespace {

constexpr size_t kMostDigits = 18;  // digits of a number that fits without an overflow check

struct Numbers {
  std::array<uint64_t, kMaxDims> values;
  size_t count = 0;
  std::span<const uint64_t> span() const { return {values.data(), count}; }
};

// Each function consumes from the front of the remaining text what its name states, or reports that it is not
// there.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : left_(text) {}

  bool take(std::string_view text) {
    if (!left_.starts_with(text)) return false;
    left_.remove_prefix(text.size());
    return true;
  }
  bool take(char c) {
    if (left_.empty() || left_.front() != c) return false;
    left_.remove_prefix(1);
    return true;
  }
  // Consumes text up to `end`, of characters that need no escape in JSON.
  bool name(std::string_view end, std::string_view* out) {
    size_t length = 0;
    while (length < left_.size() && is_plain(left_[length])) ++length;
    *out = left_.substr(0, length);
    left_.remove_prefix(length);
    return length != 0 && take(end);
  }
  // A quoted JSON string with any escapes.
  bool quoted(std::string_view* out) {
    if (left_.empty() || left_.front() != '"') return false;
    size_t length = 1;
    while (length < left_.size() && left_[length] != '"') length += left_[length] == '\\' ? 2 : 1;
    if (length >= left_.size()) return false;
    return text(length + 1, out);
  }
  bool number(uint64_t* out) {
    size_t digits = 0;
    uint64_t value = 0;
    for (; digits < left_.size() && left_[digits] >= '0' && left_[digits] <= '9'; ++digits) {
      if (digits == kMostDigits) return false;
      value = value * 10 + static_cast<uint64_t>(left_[digits] - '0');
    }
    if (digits == 0 || (digits > 1 && left_.front() == '0')) return false;
    *out = value;
    left_.remove_prefix(digits);
    return true;
  }
  bool numbers(Numbers* out) {
    out->count = 0;
    if (!take('[')) return false;
    if (take(']')) return true;
    do {
      if (out->count == kMaxDims || !number(&out->values[out->count++])) return false;
    } while (take(','));
    return take(']');
  }
  bool text(size_t bytes, std::string_view* out) {
    if (left_.size() < bytes) return false;
    *out = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return true;
  }
  std::string_view left() const { return left_; }

 private:
  static bool is_plain(char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }
  std::string_view left_;
};

class PlainParser {
 public:
  PlainParser(std::string_view text, uint64_t data_bytes) : text_(text), data_bytes_(data_bytes) {}

  bool parse(ParsedShardHeader* out) {
    if (!text_.take("{\"__metadata__\":{\"format\":\"pt\",\"DCP_SHARDING_INFO\":\"{")) return false;
    if (!parse_sharding() || !text_.take("\",\"shoal\":\"{\\\"version\\\":1,\\\"objects\\\":[")) return false;
    if (!parse_objects() || !text_.take("}\"")) return false;
    if (text_.take(",\"shoal_user\":") && !parse_user(&out->user)) return false;
    if (!text_.take(",\"shoal_digests\":\"")) return false;
    const size_t digits = text_.left().find('"');
    std::string_view digests;
    if (digits == std::string_view::npos || !text_.text(digits, &digests) || !text_.take("\"}")) return false;
    for (const Sharded& sharded : sharded_) {
      if (!parse_tensor(sharded, &out->pieces)) return false;
    }
    if (!text_.take('}') || text_.left().find_first_not_of(' ') != std::string_view::npos) return false;
    if (end_ != data_bytes_ || next_object_ != objects_.size()) return false;
    if (digests.size() != digests_ * kDigestDigits || !parse_digests(digests, &out->digests)) return false;
    if (out->pieces.sort()) return false;
    out->pieces.shrink();
    return true;
  }

 private:
  static_assert(kShardFormatVersion == 1, "the text above contains the version");
  struct Sharded {
    std::string_view key, fqn;
    uint32_t numbers_at = 0;  // offsets, then the global shape
    uint8_t dims = 0;
    bool is_object = false;
  };

  bool parse_sharding() {
    if (text_.take('}')) return true;
    Numbers offsets, shape;
    do {
      Sharded here;
      if (!text_.take("\\\"") || !text_.name("\\\":{\\\"saved_offsets\\\":", &here.key)) return false;
      if (!text_.numbers(&offsets)) return false;
      here.is_object = !text_.take(",\\\"global_shape\\\":");
      if (here.is_object && (offsets.count != 1 || offsets.values[0] != 0)) return false;
      if (!here.is_object && (!text_.numbers(&shape) || shape.count != offsets.count)) return false;
      here.fqn = here.key;
      if (text_.take(",\\\"logical_fqn\\\":\\\"") && !text_.name("\\\"", &here.fqn)) return false;
      if (!text_.take('}')) return false;
      if (!validate_shard_key(here.key).ok() || !validate_fqn(here.fqn).ok()) return false;
      if (!here.is_object) {
        here.dims = static_cast<uint8_t>(shape.count);
        here.numbers_at = static_cast<uint32_t>(numbers_.size());
        numbers_.insert(numbers_.end(), offsets.values.begin(), offsets.values.begin() + offsets.count);
        numbers_.insert(numbers_.end(), shape.values.begin(), shape.values.begin() + shape.count);
      }
      sharded_.push_back(here);
    } while (text_.take(','));
    return text_.take('}');
  }

  bool parse_objects() {
    if (text_.take(']')) return true;
    do {
      if (!text_.take("\\\"") || !text_.name("\\\"", &objects_.emplace_back())) return false;
    } while (text_.take(','));
    return text_.take(']');
  }

  bool parse_user(UserMetadata* out) {
    std::string_view quoted;
    std::string json;
    if (!text_.quoted(&quoted) || !JsonReader(quoted).read_string(&json, kMaxUserJsonBytes).ok())
      return false;
    auto user = parse_user_json(json);
    if (user.ok()) *out = std::move(*user);
    return user.ok();
  }

  bool parse_tensor(const Sharded& sharded, ShardPieces* out) {
    std::string_view key, dtype;
    Numbers shape;
    uint64_t begin = 0, end = 0;
    if (!text_.take(",\"") || !text_.name("\":{\"dtype\":\"", &key) || key != sharded.key) return false;
    if (!text_.name("\",\"shape\":", &dtype) || !text_.numbers(&shape)) return false;
    if (!text_.take(",\"data_offsets\":[") || !text_.number(&begin) || !text_.take(',')) return false;
    if (!text_.number(&end) || !text_.take("]}")) return false;
    if (!look_up(dtype) || begin != end_ || end < begin || end > data_bytes_) return false;
    const std::optional<uint64_t> elements = element_count(shape.span());
    if (!elements || *elements > data_bytes_ / element_bytes_ || *elements * element_bytes_ != end - begin) {
      return false;
    }
    if (begin % element_bytes_ != 0) return false;
    ShardPieces::Flat piece{sharded.key, sharded.fqn, dtype_, sharded.is_object, {}, {}, {}, end - begin};
    if (sharded.is_object) {
      if (next_object_ == objects_.size() || objects_[next_object_++] != key) return false;
      if (dtype_ != DType::u8 || shape.count != 1) return false;
    } else {
      piece.box_offsets = std::span(numbers_).subspan(sharded.numbers_at, sharded.dims);
      piece.global_shape = std::span(numbers_).subspan(sharded.numbers_at + sharded.dims, sharded.dims);
      piece.box_sizes = shape.span();
      if (!lies_within(piece)) return false;
    }
    out->add(piece);
    digests_ += base::digest_count(end - begin);
    end_ = end;
    return true;
  }

  static bool lies_within(const ShardPieces::Flat& piece) {
    if (piece.box_sizes.size() != piece.global_shape.size()) return false;
    for (size_t i = 0; i < piece.global_shape.size(); ++i) {
      const uint64_t size = piece.global_shape[i], offset = piece.box_offsets[i];
      if (offset > size || piece.box_sizes[i] > size - offset) return false;
    }
    return true;
  }

  // It usually equals that of the previous tensor.
  bool look_up(std::string_view name) {
    if (name == dtype_name_) return true;
    const Result<DType> known = dtype_from_name(name);
    if (!known.ok()) return false;
    const Result<uint64_t> bytes = dtype_bytes(*known);
    if (!bytes.ok()) return false;
    dtype_name_ = name;
    dtype_ = *known;
    element_bytes_ = *bytes;
    return true;
  }

  Cursor text_;
  const uint64_t data_bytes_;
  PagedVector<Sharded> sharded_;
  PagedVector<uint64_t> numbers_;
  std::vector<std::string_view> objects_;
  size_t next_object_ = 0;
  std::string_view dtype_name_;
  DType dtype_ = DType::u8;
  uint64_t element_bytes_ = 1;
  uint64_t end_ = 0, digests_ = 0;  // of the tensors so far
};

}  // namespace

std::optional<ParsedShardHeader> parse_plain_shard_header(std::string_view json, uint64_t data_bytes) {
  std::optional<ParsedShardHeader> out(std::in_place);
  if (!PlainParser(json, data_bytes).parse(&*out)) out.reset();
  return out;
}

bool parse_digests(std::string_view text, std::vector<uint64_t>* digests) {
  if (text.size() % kDigestDigits != 0) return false;
  digests->reserve(text.size() / kDigestDigits);
  for (size_t at = 0; at < text.size(); at += kDigestDigits) {
    uint64_t digest = 0;
    for (char c : text.substr(at, kDigestDigits)) {
      const bool decimal = c >= '0' && c <= '9';
      if (!decimal && !(c >= 'a' && c <= 'f')) return false;
      digest = digest << 4 | static_cast<uint64_t>(decimal ? c - '0' : c - 'a' + 10);
    }
    digests->push_back(digest);
  }
  return true;
}

}  // namespace shoal::storage
