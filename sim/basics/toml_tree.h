// TomlTable: a TOML file as plain values with their line numbers. It supports integers, strings, tables and
// arrays of tables only. The simulator needs no other types; its arithmetic has no fractions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "shoal/status.h"

namespace shoal::sim {

// The place in a file where a value is set. It is not part of the value, so all places compare equal.
struct TomlPlace {
  std::shared_ptr<const std::string> file;  // null: the value is not from a file
  uint32_t line = 0;

  Status error(const std::string& what) const;  // "file:line: what", or "what" alone
  friend bool operator==(const TomlPlace&, const TomlPlace&) { return true; }
};

class TomlTable {
 public:
  struct Entry {
    std::string key;
    uint32_t line = 0;
    std::variant<int64_t, std::string, std::shared_ptr<const TomlTable>,
                 std::vector<std::shared_ptr<const TomlTable>>>
        value;
  };

  std::string file;  // name of the file, for error texts
  uint32_t line = 0;
  std::vector<Entry> entries;  // sorted by key

  const Entry* find(std::string_view key) const;
  // Each of these returns the value of a key, or `otherwise` if the key is absent. An entry of another type
  // is Code::invalid_argument; the error names file and line.
  Result<int64_t> integer(std::string_view key, int64_t least, int64_t most, int64_t otherwise) const;
  Result<std::string> text(std::string_view key, std::string otherwise) const;
  Result<std::shared_ptr<const TomlTable>> table(std::string_view key) const;  // null where absent
  Result<std::vector<std::shared_ptr<const TomlTable>>> tables(std::string_view key) const;  // [[key]]
  // An error that names the first entry whose key is not in `keys`.
  Status allow_only(std::span<const std::string_view> keys) const;
  Status error(uint32_t at_line, const std::string& what) const;  // "file:line: what"
  TomlPlace place(uint32_t at_line) const;
};

// `file` is the name in error texts. Code::invalid_argument: "file:line: why".
Result<TomlTable> parse_toml(std::string_view text, const std::string& file);
// A TOML string with this text, over several lines if the text has several.
std::string toml_string(std::string_view text);
Result<std::string> read_text(const std::string& path);  // contents of a file; Code::not_found

}  // namespace shoal::sim
