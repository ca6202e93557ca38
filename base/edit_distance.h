// How similar two names are, for suggestions in error messages.
#pragma once

#include <cstddef>
#include <string_view>

namespace shoal::base {

inline constexpr size_t kMaxComparedLength = 64;  // of a name; further bytes count as equal

// Levenshtein's distance: the number of bytes to insert, remove or replace.
size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace shoal::base
