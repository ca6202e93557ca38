// Comma-separated values without quotes, as the recorded figures of campaigns use them.
#pragma once

#include <charconv>
#include <cstddef>
#include <functional>
#include <string_view>
#include <system_error>
#include <vector>

#include "shoal/status.h"

namespace shoal::sim {

// True if the whole text is a number of this type.
template <class T>
bool parse_number(std::string_view text, T* value) {
  const auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && stopped == text.data() + text.size();
}

// One part more than there are separators.
std::vector<std::string_view> split(std::string_view line, char by);

// Calls `take` for each line, except empty ones, comments ("# ...") and the line of the columns.
// Code::corrupt names the first line that `take` rejects.
Status parse_csv(std::string_view csv, std::string_view columns,
                 const std::function<bool(const std::vector<std::string_view>&)>& take);

}  // namespace shoal::sim
