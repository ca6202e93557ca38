// What --json prints: one envelope for every command. docs/reference/json.md describes each command's fields.
//
//   {"command": "ls", "json_version": 1, ...}                              the fields of the command
//   {"command": "ls", "json_version": 1, "error": {"code", "message"}}     the command could not do its work
//
// JSON must be UTF-8, but a path may be anything: U+FFFD replaces invalid bytes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "shoal/metadata.h"
#include "shoal/status.h"

namespace shoal::cli {

// Increases when a field is removed, or changes its name, type or meaning. A new field does not change it.
inline constexpr int kJsonVersion = 1;

enum class JsonLayout : uint8_t { indented, one_line };

// Prints the envelope and then `fields`, an object without the names of the envelope.
void print_json(std::string_view command, const nlohmann::ordered_json& fields,
                JsonLayout layout = JsonLayout::indented);

// As `error` states it: "io", "no_space".
std::string json_code(Code code);

// Prints the envelope with `error`, unless this process has printed a JSON value: a command prints its
// result or its error, never both.
void print_json_error(std::string_view command, const Status& error);

inline nlohmann::ordered_json key_json(const AttemptKey& key) {
  return {{"step", key.step}, {"generation", key.generation}, {"attempt", key.attempt}};
}

}  // namespace shoal::cli
