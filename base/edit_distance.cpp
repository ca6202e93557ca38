#include "base/edit_distance.h"

#include <algorithm>
#include <vector>

namespace shoal::base {

size_t edit_distance(std::string_view a, std::string_view b) {
  a = a.substr(0, kMaxComparedLength);
  b = b.substr(0, kMaxComparedLength);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

std::optional<std::string> nearest_name(std::string_view given, const std::vector<std::string>& names) {
  const auto nearest = std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return edit_distance(given, a) < edit_distance(given, b);
  });
  if (nearest == names.end()) return std::nullopt;
  if (edit_distance(given, *nearest) > std::max<size_t>(1, given.size() / 3)) return std::nullopt;
  return *nearest;
}

}  // namespace shoal::base
