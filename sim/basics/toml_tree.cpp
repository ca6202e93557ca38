#include "sim/basics/toml_tree.h"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/edit_distance.h"

namespace shoal::sim {

namespace {

Result<TomlTable> convert(const toml::table& from, const std::string& file) {
  TomlTable to;
  to.file = file;
  to.line = static_cast<uint32_t>(from.source().begin.line);
  for (const auto& [key, node] : from) {
    TomlTable::Entry entry;
    entry.key = std::string(key.str());
    entry.line = static_cast<uint32_t>(node.source().begin.line);
    if (const auto* integer = node.as_integer()) {
      entry.value = integer->get();
    } else if (const auto* text = node.as_string()) {
      entry.value = text->get();
    } else if (const auto* table = node.as_table()) {
      SHOAL_ASSIGN_OR_RETURN(TomlTable inner, convert(*table, file));
      entry.value = std::make_shared<const TomlTable>(std::move(inner));
    } else if (const auto* list = node.as_array(); list != nullptr && list->is_array_of_tables()) {
      std::vector<std::shared_ptr<const TomlTable>> tables;
      for (const auto& each : *list) {
        SHOAL_ASSIGN_OR_RETURN(TomlTable inner, convert(*each.as_table(), file));
        tables.push_back(std::make_shared<const TomlTable>(std::move(inner)));
      }
      entry.value = std::move(tables);
    } else {
      return to.error(entry.line, fmt::format("{}: expected an integer, a string or a table", entry.key));
    }
    to.entries.push_back(std::move(entry));
  }
  std::sort(to.entries.begin(), to.entries.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
  return to;
}

}  // namespace

const TomlTable::Entry* TomlTable::find(std::string_view key) const {
  for (const Entry& entry : entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

Status TomlPlace::error(const std::string& what) const {
  return Status(Code::invalid_argument, file ? fmt::format("{}:{}: {}", *file, line, what) : what);
}

Status TomlTable::error(uint32_t at_line, const std::string& what) const {
  return Status(Code::invalid_argument, fmt::format("{}:{}: {}", file, at_line, what));
}

TomlPlace TomlTable::place(uint32_t at_line) const {
  return {std::make_shared<const std::string>(file), at_line};
}

Result<int64_t> TomlTable::integer(std::string_view key, int64_t least, int64_t most,
                                   int64_t otherwise) const {
  const Entry* entry = find(key);
  if (entry == nullptr) return otherwise;
  const auto* value = std::get_if<int64_t>(&entry->value);
  if (value == nullptr) return error(entry->line, fmt::format("{}: expected an integer", key));
  if (*value < least || *value > most) {
    return error(entry->line,
                 fmt::format("{} = {}: it must lie between {} and {}", key, *value, least, most));
  }
  return *value;
}

Result<std::string> TomlTable::text(std::string_view key, std::string otherwise) const {
  const Entry* entry = find(key);
  if (entry == nullptr) return otherwise;
  const auto* value = std::get_if<std::string>(&entry->value);
  if (value == nullptr) return error(entry->line, fmt::format("{}: expected a string", key));
  return *value;
}

Result<std::shared_ptr<const TomlTable>> TomlTable::table(std::string_view key) const {
  const Entry* entry = find(key);
  if (entry == nullptr) return std::shared_ptr<const TomlTable>();
  const auto* value = std::get_if<std::shared_ptr<const TomlTable>>(&entry->value);
  if (value == nullptr) return error(entry->line, fmt::format("{}: expected a table", key));
  return *value;
}

Result<std::vector<std::shared_ptr<const TomlTable>>> TomlTable::tables(std::string_view key) const {
  using Tables = std::vector<std::shared_ptr<const TomlTable>>;
  const Entry* entry = find(key);
  if (entry == nullptr) return Tables();
  const auto* value = std::get_if<Tables>(&entry->value);
  if (value == nullptr) return error(entry->line, fmt::format("{}: expected a list [[{}]]", key, key));
  return *value;
}

Status TomlTable::allow_only(std::span<const std::string_view> keys) const {
  for (const Entry& entry : entries) {
    if (std::find(keys.begin(), keys.end(), entry.key) != keys.end()) continue;
    const auto nearest = base::nearest_name(entry.key, {keys.begin(), keys.end()});
    return error(entry.line, fmt::format("'{}' is not known here{} known keys are {}", entry.key,
                                         nearest ? fmt::format(": did you mean '{}'? The", *nearest) : ";",
                                         fmt::join(keys, ", ")));
  }
  return ok_status();
}

Result<TomlTable> parse_toml(std::string_view text, const std::string& file) {
  try {
    return convert(toml::parse(text), file);
  } catch (const toml::parse_error& error) {
    return Status(Code::invalid_argument,
                  fmt::format("{}:{}: {}", file, error.source().begin.line, error.description()));
  }
}

std::string toml_string(std::string_view text) {
  const bool has_lines = text.find('\n') != std::string_view::npos;
  std::string escaped;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      escaped += fmt::format("\\{}", c);
    } else if ((byte < 0x20 && !(has_lines && c == '\n')) || byte == 0x7f) {
      escaped += fmt::format("\\u{:04x}", byte);
    } else {
      escaped += c;
    }
  }
  return has_lines ? fmt::format("\"\"\"\n{}\"\"\"", escaped) : fmt::format("\"{}\"", escaped);
}

Result<std::string> read_text(const std::string& path) {
  std::ifstream stream(path);
  std::ostringstream text;
  if (stream) text << stream.rdbuf();
  if (!stream || !text) return Status(Code::not_found, path + ": cannot read this file");
  return text.str();
}

}  // namespace shoal::sim
