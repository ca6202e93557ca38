// The subset of JSON (RFC 8259) that shard headers use: objects, arrays, strings and unsigned integers. The
// caller pulls one token at a time. The reader does not recurse, and allocates only what the caller requests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "shoal/status.h"

namespace shoal::storage {

// Errors are Code::corrupt and contain the position in the text; the caller adds the file. Use:
//   SHOAL_RETURN_IF_ERROR(json.expect('{'));
//   for (bool more = !json.take('}'); more;) { key ':' value; SHOAL_RETURN_IF_ERROR(json.next('}', &more)); }
class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}  // borrowed

  bool take(char c);      // consumes `c` if it is the next character after white space
  Status expect(char c);  // like take, but an error if `c` is not next
  // After a member or element: *more is true after ',', false after `close`.
  Status next(char close, bool* more);
  // Unescaped, at most bytes_max of valid UTF-8 (an escaped NUL is allowed).
  Status read_string(std::string* out, size_t bytes_max);
  Status skip_string();
  Status read_unsigned(uint64_t* out);  // digits only, without leading zeros, below 2^64
  Status expect_end();                  // an error unless only white space is left
  Status error(std::string_view what) const;

 private:
  void skip_space();
  Status read_escape(std::string* out);
  Status read_hex4(uint32_t* out);

  std::string_view text_;
  size_t at_ = 0;
};

void append_json_string(std::string* out, std::string_view text);  // quoted and escaped; `text` is UTF-8

}  // namespace shoal::storage
