// The output of --json. JSON must be UTF-8, but a path may be anything: U+FFFD replaces invalid bytes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "shoal/metadata.h"

namespace shoal::cli {

// `indent`: spaces per level; -1: everything on one line.
inline std::string json_text(const nlohmann::ordered_json& value, int indent = 2) {
  return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

inline nlohmann::ordered_json key_json(const AttemptKey& key) {
  return {{"step", key.step}, {"generation", key.generation}, {"attempt", key.attempt}};
}

}  // namespace shoal::cli
