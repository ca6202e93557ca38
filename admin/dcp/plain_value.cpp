#include "admin/dcp/plain_value.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <cmath>

#include "admin/dcp/torch_archive.h"
#include "storage/shards/json.h"

namespace shoal::admin {

namespace {

constexpr int kMaxDepth = 100;              // of containers in each other
constexpr size_t kMaxBigIntegerBytes = 64;  // the states of random generators have 16
constexpr char kBytesMarker = '\x00', kByteArrayMarker = '\x04';

// Whether it is UTF-8 as Python writes text, in which surrogates may occur.
bool is_python_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    const size_t length = first < 0x80   ? 1
                          : first < 0xc2 ? 0
                          : first < 0xe0 ? 2
                          : first < 0xf0 ? 3
                          : first < 0xf5 ? 4
                                         : 0;
    if (length == 0 || length > text.size() - i) return false;
    for (size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) return false;
    }
    const auto second = static_cast<unsigned char>(length > 1 ? text[i + 1] : 0);
    if ((first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90) ||
        (first == 0xf4 && second > 0x8f)) {
      return false;
    }
    i += length;
  }
  return true;
}

// The bytes whose values are the characters of a text, as protocol 2 writes bytes. nullopt: there are others.
std::optional<std::string> from_latin1(std::string_view utf8) {
  std::string out;
  out.reserve(utf8.size());
  for (size_t i = 0; i < utf8.size(); ++i) {
    const auto c = static_cast<unsigned char>(utf8[i]);
    if (c < 0x80) {
      out.push_back(utf8[i]);
    } else if ((c == 0xc2 || c == 0xc3) && i + 1 < utf8.size()) {
      out.push_back(static_cast<char>((c & 3) << 6 | (static_cast<unsigned char>(utf8[++i]) & 0x3f)));
    } else {
      return std::nullopt;
    }
  }
  return out;
}

std::string base64(std::string_view bytes) {
  std::string out((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const int length =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  out.resize(static_cast<size_t>(length));
  return out;
}

// Decimal digits of a little-endian number in two's complement.
std::string decimal(std::string_view digits) {
  const bool is_negative = (static_cast<unsigned char>(digits.back()) & 0x80) != 0;
  std::string magnitude(digits);
  if (is_negative) {
    unsigned carry = 1;
    for (char& c : magnitude) {
      const unsigned sum = (static_cast<unsigned char>(~static_cast<unsigned char>(c))) + carry;
      c = static_cast<char>(sum);
      carry = sum >> 8;
    }
  }
  std::string out;
  while (!magnitude.empty()) {
    unsigned rest = 0;
    for (size_t i = magnitude.size(); i-- > 0;) {
      const unsigned value = rest << 8 | static_cast<unsigned char>(magnitude[i]);
      magnitude[i] = static_cast<char>(value / 10);
      rest = value % 10;
    }
    out.push_back(static_cast<char>('0' + rest));
    while (!magnitude.empty() && magnitude.back() == '\0') magnitude.pop_back();
  }
  if (is_negative) out.push_back('-');
  return {out.rbegin(), out.rend()};
}

class Encoder {
 public:
  Encoder(const Pickle& pickle, uint64_t bytes_max) : pickle_(pickle), bytes_max_(bytes_max) {}

  // False: the value is not plain.
  bool add(PickleId id);
  std::string take() { return std::move(out_); }

  // The bytes of a bytes or a bytearray.
  std::optional<std::string> bytes_of(PickleId id, bool* is_array) const;

 private:
  bool add_inside(PickleId id);
  bool add_real(double value);
  bool add_text(std::string_view text);
  bool add_sequence(std::string_view before, std::span<const PickleId> items, std::string_view after);
  bool add_dict(PickleId id);
  bool add_object(PickleId id);
  bool add_device(std::span<const PickleId> arguments);
  bool is_dtype(PickleId id) const {
    return pickle_.kind(id) == PickleKind::global && is_torch_dtype(pickle_.module(id), pickle_.name(id));
  }

  const Pickle& pickle_;
  const uint64_t bytes_max_;
  std::string out_;
  int depth_ = 0;
};

bool Encoder::add(PickleId id) {
  if (depth_ == kMaxDepth || out_.size() > bytes_max_) return false;
  ++depth_;
  const bool is_plain = add_inside(id);
  --depth_;
  return is_plain && out_.size() <= bytes_max_;
}

bool Encoder::add_inside(PickleId id) {
  switch (pickle_.kind(id)) {
    case PickleKind::none:
      out_ += "null";
      return true;
    case PickleKind::boolean:
      out_ += pickle_.boolean(id) ? "true" : "false";
      return true;
    case PickleKind::integer:
      out_ += std::to_string(pickle_.integer(id));
      return true;
    case PickleKind::big_integer:
      if (pickle_.text(id).size() > kMaxBigIntegerBytes) return false;
      out_ += decimal(pickle_.text(id));
      return true;
    case PickleKind::real:
      return add_real(pickle_.real(id));
    case PickleKind::text:
      return add_text(pickle_.text(id));
    case PickleKind::list:
      return add_sequence("[", pickle_.items(id), "]");
    case PickleKind::tuple:
      return add_sequence("{\"tuple\":[", pickle_.items(id), "]}");
    case PickleKind::dict:
      return add_dict(id);
    case PickleKind::global:
      if (!is_dtype(id)) return false;
      out_ += fmt::format("{{\"torch.dtype\":\"torch.{}\"}}", pickle_.name(id));
      return true;
    case PickleKind::bytes:
    case PickleKind::bytearray:
    case PickleKind::object:
      return add_object(id);
    case PickleKind::set:
    case PickleKind::frozenset:
    case PickleKind::persistent:
      return false;
  }
  return false;
}

bool Encoder::add_real(double value) {
  if (!std::isfinite(value)) {
    out_ += fmt::format("{{\"float\":\"{}\"}}", std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
    return true;
  }
  const std::string text = fmt::format("{}", value);
  out_ += text;
  if (text.find_first_of(".e") == std::string::npos) out_ += ".0";  // "1" would be an integer
  return true;
}

bool Encoder::add_text(std::string_view text) {
  if (!is_python_utf8(text)) return false;
  storage::append_json_string(&out_, text);
  return true;
}

bool Encoder::add_sequence(std::string_view before, std::span<const PickleId> items, std::string_view after) {
  out_ += before;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out_ += ',';
    if (!add(items[i])) return false;
  }
  out_ += after;
  return true;
}

bool Encoder::add_dict(PickleId id) {
  const auto entries = pickle_.entries(id);
  out_ += "{\"dict\":[";
  for (size_t i = 0; i < entries.size(); i += 2) {
    const PickleKind key = pickle_.kind(entries[i]);
    if (key != PickleKind::text && key != PickleKind::integer) return false;
    out_ += i > 0 ? ",[" : "[";
    if (!add(entries[i])) return false;
    out_ += ',';
    if (!add(entries[i + 1])) return false;
    out_ += ']';
  }
  out_ += "]}";
  return true;
}

std::optional<std::string> Encoder::bytes_of(PickleId id, bool* is_array) const {
  *is_array = false;
  if (pickle_.kind(id) == PickleKind::bytes) return std::string(pickle_.text(id));
  if (pickle_.kind(id) == PickleKind::bytearray) {
    *is_array = true;
    return std::string(pickle_.text(id));
  }
  if (pickle_.kind(id) != PickleKind::object || pickle_.state(id) != kNoPickleId) return std::nullopt;
  const auto arguments = pickle_.arguments(id);
  const std::string_view module = pickle_.module(id), name = pickle_.name(id);
  const bool is_builtin = module == "__builtin__" || module == "builtins";
  *is_array = is_builtin && name == "bytearray";
  const bool is_bytes = is_builtin && name == "bytes";
  if ((*is_array || is_bytes) && arguments.empty()) return std::string();
  if (*is_array && arguments.size() == 1 && pickle_.kind(arguments[0]) == PickleKind::bytes) {
    return std::string(pickle_.text(arguments[0]));
  }
  const bool is_encoded = *is_array || (module == "_codecs" && name == "encode");
  if (!is_encoded || arguments.size() != 2) return std::nullopt;
  if (pickle_.kind(arguments[0]) != PickleKind::text || pickle_.kind(arguments[1]) != PickleKind::text) {
    return std::nullopt;
  }
  const std::string_view encoding = pickle_.text(arguments[1]);
  if (encoding != "latin1" && encoding != "latin-1") return std::nullopt;
  return from_latin1(pickle_.text(arguments[0]));
}

bool Encoder::add_object(PickleId id) {
  bool is_array = false;
  if (const auto bytes = bytes_of(id, &is_array)) {
    if (bytes->size() > bytes_max_) return false;
    out_ += fmt::format("{{\"{}\":\"{}\"}}", is_array ? "bytearray" : "bytes", base64(*bytes));
    return true;
  }
  if (pickle_.kind(id) != PickleKind::object || pickle_.state(id) != kNoPickleId) return false;
  if (!pickle_.entries(id).empty()) return false;
  const auto arguments = pickle_.arguments(id);
  if (pickle_.is_named(id, "torch", "Size") && arguments.size() == 1 && dims_of(pickle_, arguments[0])) {
    return add_sequence("{\"torch.Size\":[", pickle_.items(arguments[0]), "]}");
  }
  const bool is_complex =
      pickle_.is_named(id, "__builtin__", "complex") || pickle_.is_named(id, "builtins", "complex");
  if (is_complex && arguments.size() == 2 && pickle_.kind(arguments[0]) == PickleKind::real &&
      pickle_.kind(arguments[1]) == PickleKind::real) {
    return add_sequence("{\"complex\":[", arguments, "]}");
  }
  return pickle_.is_named(id, "torch", "device") && add_device(arguments);
}

bool Encoder::add_device(std::span<const PickleId> arguments) {
  if (arguments.empty() || arguments.size() > 2 || pickle_.kind(arguments[0]) != PickleKind::text)
    return false;
  std::string name(pickle_.text(arguments[0]));
  if (arguments.size() == 2) {
    if (pickle_.kind(arguments[1]) != PickleKind::integer) return false;
    name += fmt::format(":{}", pickle_.integer(arguments[1]));
  }
  out_ += "{\"torch.device\":";
  if (!add_text(name)) return false;
  out_ += '}';
  return true;
}

}  // namespace

std::optional<std::string> encode_plain(const Pickle& pickle, PickleId id, uint64_t bytes_max) {
  Encoder encoder(pickle, bytes_max);
  bool is_array = false;
  if (const auto bytes = encoder.bytes_of(id, &is_array)) {
    return std::string(1, is_array ? kByteArrayMarker : kBytesMarker) + *bytes;
  }
  if (!encoder.add(id)) return std::nullopt;
  return encoder.take();
}

}  // namespace shoal::admin
