#include "cli/json_output.h"

#include <fmt/format.h>

#include <algorithm>

namespace shoal::cli {

namespace {

bool has_printed_json = false;  // by the main thread, which alone prints results

}  // namespace

void print_json(std::string_view command, const nlohmann::ordered_json& fields, JsonLayout layout) {
  nlohmann::ordered_json out = {{"command", command}, {"json_version", kJsonVersion}};
  for (const auto& [name, value] : fields.items()) {
    SHOAL_CHECK(!out.contains(name));
    out[name] = value;
  }
  const int indent = layout == JsonLayout::indented ? 2 : -1;
  fmt::print("{}\n", out.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  has_printed_json = true;
}

std::string json_code(Code code) {
  if (code == Code::io) return "io";
  if (code == Code::internal) return "internal";
  std::string out(code_name(code));
  std::ranges::replace(out, ' ', '_');
  return out;
}

void print_json_error(std::string_view command, const Status& error) {
  if (has_printed_json) return;
  print_json(command, {{"error", {{"code", json_code(error.code())}, {"message", error.message()}}}});
}

}  // namespace shoal::cli
