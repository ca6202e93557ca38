// What --json prints. A path need not be UTF-8, JSON has to be: U+FFFD stands for what is not.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace shoal::cli {

// `indent`: of each level; -1 for all on one line.
inline std::string json_text(const nlohmann::ordered_json& value, int indent = 2) {
  return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace shoal::cli
