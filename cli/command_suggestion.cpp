#include "cli/command_suggestion.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/edit_distance.h"

namespace shoal::cli {

namespace {

// Names of other programs for what a command does, where the letters do not show it.
constexpr auto kOtherNames = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"check", "verify"},
    {"clean", "gc"},
    {"config", "settings"},
    {"delete", "rm"},
    {"diagnose", "doctor"},
    {"info", "show"},
    {"list", "ls"},
    {"remove", "rm"},
    {"run", "launch"},
    {"simulate", "sim"},
});

}  // namespace

std::string unknown_command(const std::string& given, const std::vector<std::string>& commands) {
  const std::string unknown = fmt::format("unknown command '{}'", given);
  const auto other = std::find_if(kOtherNames.begin(), kOtherNames.end(),
                                  [&](const auto& name) { return name.first == given; });
  if (other != kOtherNames.end()) return fmt::format("{}; did you mean '{}'?", unknown, other->second);
  const auto nearest = base::nearest_name(given, commands);
  return nearest ? fmt::format("{}; did you mean '{}'?", unknown, *nearest) : unknown;
}

}  // namespace shoal::cli
