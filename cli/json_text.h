// The output of --json. JSON must be UTF-8, but a path may be anything: U+FFFD replaces invalid bytes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace shoal::cli {

// `indent`: spaces per level; -1: everything on one line.
inline std::string json_text(const nlohmann::ordered_json& value, int indent = 2) {
  return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace shoal::cli
