#include "storage/shards/json.h"

#include <fmt/format.h>

#include <limits>

namespace shoal::storage {

namespace {

bool is_surrogate(uint32_t point, uint32_t first) {
  return point >= first && point < first + 0x400;
}

bool is_plain(char c) {
  unsigned char byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte < 0x80 && c != '"' && c != '\\';
}

void append_utf8(std::string* out, uint32_t point) {
  if (point < 0x80) {
    out->push_back(static_cast<char>(point));
    return;
  }
  unsigned more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
  static constexpr uint32_t lead[] = {0, 0xc0, 0xe0, 0xf0};
  out->push_back(static_cast<char>(lead[more] | (point >> (6 * more))));
  while (more-- > 0) out->push_back(static_cast<char>(0x80 | ((point >> (6 * more)) & 0x3f)));
}

// The length of the UTF-8 sequence at the start of `text`, 0 if it is none (overlong, surrogate, cut short).
size_t utf8_length(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char c = byte(0);
  size_t more = c < 0x80 ? 0 : (c >> 5) == 6 ? 1 : (c >> 4) == 14 ? 2 : (c >> 3) == 30 ? 3 : 4;
  if (more == 4 || text.size() <= more) return 0;
  uint32_t point = more == 0 ? c : c & (0x3fu >> more);
  for (size_t i = 1; i <= more; ++i) {
    if ((byte(i) >> 6) != 2) return 0;
    point = (point << 6) | (byte(i) & 0x3f);
  }
  static constexpr uint32_t smallest[] = {0, 0x80, 0x800, 0x10000};
  if (point < smallest[more] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) return 0;
  return more + 1;
}

}  // namespace

Status JsonReader::error(std::string_view what) const {
  return Status(Code::corrupt, fmt::format("{} (byte {} of {})", what, at_, text_.size()));
}

void JsonReader::skip_space() {
  while (at_ < text_.size() &&
         (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
    ++at_;
  }
}

bool JsonReader::take(char c) {
  skip_space();
  if (at_ >= text_.size() || text_[at_] != c) return false;
  ++at_;
  return true;
}

Status JsonReader::expect(char c) {
  if (take(c)) return ok_status();
  return error(fmt::format("'{}' expected", c));
}

Status JsonReader::next(char close, bool* more) {
  *more = take(',');
  if (*more || take(close)) return ok_status();
  return error(fmt::format("',' or '{}' expected", close));
}

Status JsonReader::read_hex4(uint32_t* out) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    char c = at_ < text_.size() ? text_[at_] : ' ';
    uint32_t digit = c >= '0' && c <= '9'   ? static_cast<uint32_t>(c - '0')
                     : c >= 'a' && c <= 'f' ? static_cast<uint32_t>(c - 'a' + 10)
                     : c >= 'A' && c <= 'F' ? static_cast<uint32_t>(c - 'A' + 10)
                                            : 16;
    if (digit == 16) return error("a bad \\u escape");
    value = value * 16 + digit;
  }
  *out = value;
  return ok_status();
}

Status JsonReader::read_escape(std::string* out) {
  if (at_ >= text_.size()) return error("a string without an end");
  char c = text_[at_++];
  switch (c) {
    case '"':
    case '\\':
    case '/':
      out->push_back(c);
      return ok_status();
    case 'b':
      out->push_back('\b');
      return ok_status();
    case 'f':
      out->push_back('\f');
      return ok_status();
    case 'n':
      out->push_back('\n');
      return ok_status();
    case 'r':
      out->push_back('\r');
      return ok_status();
    case 't':
      out->push_back('\t');
      return ok_status();
    case 'u':
      break;
    default:
      return error("an unknown escape");
  }
  uint32_t point = 0;
  SHOAL_RETURN_IF_ERROR(read_hex4(&point));
  if (is_surrogate(point, 0xd800) && text_.substr(at_, 2) == "\\u") {
    at_ += 2;
    uint32_t low = 0;
    SHOAL_RETURN_IF_ERROR(read_hex4(&low));
    if (!is_surrogate(low, 0xdc00)) return error("half a surrogate pair");
    point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
  }
  if (is_surrogate(point, 0xd800) || is_surrogate(point, 0xdc00)) return error("half a surrogate pair");
  append_utf8(out, point);
  return ok_status();
}

Status JsonReader::read_string(std::string* out, size_t bytes_max) {
  SHOAL_RETURN_IF_ERROR(expect('"'));
  out->clear();
  for (;;) {
    size_t run = at_;
    while (run < text_.size() && is_plain(text_[run])) ++run;
    if (run - at_ > bytes_max - out->size()) break;
    out->append(text_.substr(at_, run - at_));
    at_ = run;
    if (at_ == text_.size()) return error("a string without an end");
    unsigned char c = static_cast<unsigned char>(text_[at_]);
    if (c == '"') {
      ++at_;
      return ok_status();
    }
    if (c < 0x20) return error("a control character in a string");
    if (c == '\\') {
      ++at_;
      SHOAL_RETURN_IF_ERROR(read_escape(out));
    } else {
      size_t length = utf8_length(text_.substr(at_));
      if (length == 0) return error("a string that is not UTF-8");
      out->append(text_.substr(at_, length));
      at_ += length;
    }
    if (out->size() > bytes_max) break;
  }
  return error(fmt::format("a string of more than {} bytes", bytes_max));
}

Status JsonReader::skip_string() {
  SHOAL_RETURN_IF_ERROR(expect('"'));
  for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
    if (text_[at_] == '\\') ++at_;
  }
  if (at_ >= text_.size()) return error("a string without an end");
  ++at_;
  return ok_status();
}

Status JsonReader::read_unsigned(uint64_t* out) {
  skip_space();
  size_t begin = at_;
  uint64_t value = 0;
  constexpr uint64_t most = std::numeric_limits<uint64_t>::max();
  for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
    uint64_t digit = static_cast<uint64_t>(text_[at_] - '0');
    if (value > (most - digit) / 10) return error("a number beyond 64 bits");
    value = value * 10 + digit;
  }
  if (at_ == begin) return error("an unsigned number expected");
  if (text_[begin] == '0' && at_ - begin > 1) return error("a number with leading zeros");
  *out = value;
  return ok_status();
}

Status JsonReader::expect_end() {
  skip_space();
  return at_ == text_.size() ? ok_status() : error("more text after the end");
}

void append_json_string(std::string* out, std::string_view text) {
  out->push_back('"');
  auto is_as_it_is = [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\'; };
  for (size_t i = 0; i < text.size();) {
    size_t run = i;
    while (run < text.size() && is_as_it_is(text[run])) ++run;
    out->append(text.substr(i, run - i));
    i = run;
    if (i == text.size()) break;
    const char c = text[i++];
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(c);
    } else {
      fmt::format_to(std::back_inserter(*out), "\\u{:04x}", static_cast<unsigned>(c));
    }
  }
  out->push_back('"');
}

}  // namespace shoal::storage
