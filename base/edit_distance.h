// How similar two names are, for suggestions in error messages.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::base {

inline constexpr size_t kMaxComparedLength = 64;  // of a name; further bytes count as equal

// Levenshtein's distance: the number of bytes to insert, remove or replace.
size_t edit_distance(std::string_view a, std::string_view b);

// The name that a user most likely meant: the most similar one. nullopt if more than a third of its letters
// differ (one letter of a short name).
std::optional<std::string> nearest_name(std::string_view given, const std::vector<std::string>& names);

}  // namespace shoal::base
