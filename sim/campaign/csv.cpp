#include "sim/campaign/csv.h"

#include <fmt/format.h>

#include <algorithm>

namespace shoal::sim {

std::vector<std::string_view> split(std::string_view line, char by) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= line.size();) {
    const size_t end = std::min(line.find(by, begin), line.size());
    parts.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Status parse_csv(std::string_view csv, std::string_view columns,
                 const std::function<bool(const std::vector<std::string_view>&)>& take) {
  size_t number = 0;
  for (const std::string_view line : split(csv, '\n')) {
    ++number;
    if (line.empty() || line.front() == '#' || line == columns) continue;
    if (!take(split(line, ','))) {
      return Status(Code::corrupt, fmt::format("line {}: '{}' is not {}", number, line, columns));
    }
  }
  return ok_status();
}

}  // namespace shoal::sim
