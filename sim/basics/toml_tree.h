// TomlTable: a TOML file as plain values with their lines. Integers, texts, tables and lists of tables
// alone: what the simulator reads needs no more, and a number with a fraction has no place in its arithmetic.
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

// Where a file says something; that is no part of what it says, so that all are equal.
struct SaidAt {
  std::shared_ptr<const std::string> file;  // null: no file says it
  uint32_t line = 0;

  Status error(const std::string& what) const;  // "file:line: what", or "what" alone
  friend bool operator==(const SaidAt&, const SaidAt&) { return true; }
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

  std::string file;  // for errors
  uint32_t line = 0;
  std::vector<Entry> entries;  // by key

  const Entry* find(std::string_view key) const;
  // Each of these: an entry of another kind is Code::invalid_argument, by file and line; absent, `otherwise`.
  Result<int64_t> integer(std::string_view key, int64_t least, int64_t most, int64_t otherwise) const;
  Result<std::string> text(std::string_view key, std::string otherwise) const;
  Result<std::shared_ptr<const TomlTable>> table(std::string_view key) const;  // null where absent
  Result<std::vector<std::shared_ptr<const TomlTable>>> tables(std::string_view key) const;  // [[key]]
  // Names the first entry that is none of these.
  Status allow_only(std::span<const std::string_view> keys) const;
  Status error(uint32_t at_line, const std::string& what) const;  // "file:line: what"
  SaidAt place(uint32_t at_line) const;
};

// `file` is for errors. Code::invalid_argument: "file:line: why".
Result<TomlTable> parse_toml(std::string_view text, const std::string& file);
// A value that says this text, over several lines where it has several.
std::string toml_string(std::string_view text);
Result<std::string> read_text(const std::string& path);  // of a file; Code::not_found

}  // namespace shoal::sim
