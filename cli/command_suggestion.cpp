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
    {"info", "show"},
    {"list", "ls"},
    {"remove", "rm"},
    {"run", "launch"},
    {"simulate", "sim"},
});

// At most a third of the letters differ, and one of a short name.
bool is_similar(size_t distance, size_t length) {
  return distance <= std::max<size_t>(1, length / 3);
}

}  // namespace

std::string unknown_command(const std::string& given, const std::vector<std::string>& commands) {
  const std::string unknown = fmt::format("unknown command '{}'", given);
  const auto other = std::find_if(kOtherNames.begin(), kOtherNames.end(),
                                  [&](const auto& name) { return name.first == given; });
  if (other != kOtherNames.end()) return fmt::format("{}; did you mean '{}'?", unknown, other->second);
  const auto nearest = std::min_element(commands.begin(), commands.end(), [&](const auto& a, const auto& b) {
    return base::edit_distance(given, a) < base::edit_distance(given, b);
  });
  if (nearest == commands.end() || !is_similar(base::edit_distance(given, *nearest), given.size())) {
    return unknown;
  }
  return fmt::format("{}; did you mean '{}'?", unknown, *nearest);
}

}  // namespace shoal::cli
