#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "shoal/bytes.h"
#include "shoal/checkpointer.h"

namespace shoal {

namespace {

struct Stage {
  const char* name;
  uint64_t LoadTimes::*value;
  bool is_bytes;
};
constexpr Stage kStages[] = {
    {"choosing", &LoadTimes::choosing_ns, false},         {"planning", &LoadTimes::planning_ns, false},
    {"reading", &LoadTimes::reading_ns, false},           {"receiving", &LoadTimes::receiving_ns, false},
    {"placing", &LoadTimes::placing_ns, false},           {"bytes read", &LoadTimes::bytes_read, true},
    {"bytes received", &LoadTimes::bytes_received, true},
};

std::string text_of(const Stage& stage, uint64_t value) {
  return stage.is_bytes ? human_bytes(value) : human_seconds(static_cast<double>(value) * 1e-9);
}

}  // namespace

std::string summarize_load_times(const std::vector<LoadTimes>& by_rank) {
  std::string text = fmt::format("{:<16}{:>12}{:>12}{:>12}  rank\n", "stage", "least", "median", "greatest");
  if (by_rank.empty()) return text;
  for (const Stage& stage : kStages) {
    std::vector<uint64_t> values;
    for (const LoadTimes& times : by_rank) values.push_back(times.*stage.value);
    const auto greatest = std::max_element(values.begin(), values.end()) - values.begin();
    std::sort(values.begin(), values.end());
    text += fmt::format("{:<16}{:>12}{:>12}{:>12}  {}\n", stage.name, text_of(stage, values.front()),
                        text_of(stage, values[values.size() / 2]), text_of(stage, values.back()), greatest);
  }
  return text;
}

}  // namespace shoal
