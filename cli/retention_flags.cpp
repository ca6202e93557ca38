#include "cli/retention_flags.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

namespace shoal {

namespace {

constexpr uint64_t kMaxDurationS = uint64_t{100} * 365 * 24 * 3600;
constexpr const char* kGroup = "Retention (what any of these keeps stays; without one, everything does)";

struct Unit {
  char letter;
  uint64_t seconds;
};
constexpr Unit kUnits[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 604800}};

}  // namespace

Result<uint64_t> parse_duration_s(const std::string& text) {
  uint64_t number = 0, unit_s = 1;
  const char* last = text.data() + text.size();
  auto [end, error] = std::from_chars(text.data(), last, number);
  bool valid = error == std::errc() && number != 0;
  if (valid && end != last) {
    valid = end + 1 == last;
    unit_s = 0;
    for (const Unit& unit : kUnits) {
      if (*end == unit.letter) unit_s = unit.seconds;
    }
  }
  if (!valid || unit_s == 0 || number > kMaxDurationS / unit_s) {
    return Status(Code::invalid_argument,
                  fmt::format("'{}' is no duration: one is written as in 90s, 15m, 36h, "
                              "7d or 2w, and at most 100 years",
                              text));
  }
  return number * unit_s;
}

void add_retention_options(CLI::App& command, RetentionPolicy* policy) {
  command.add_option("--keep-last", policy->keep_last, "Keep the newest N checkpoints")
      ->type_name("N")
      ->check(CLI::Range(1u, std::numeric_limits<uint32_t>::max()))
      ->group(kGroup);
  command
      .add_option("--keep-every", policy->keep_every,
                  "Keep the newest checkpoint of each step that N divides")
      ->type_name("N")
      ->check(CLI::Range(uint64_t{1}, std::numeric_limits<uint64_t>::max()))
      ->group(kGroup);
  command
      .add_option_function<std::string>(
          "--keep-for",
          [policy](const std::string& text) {
            auto seconds = parse_duration_s(text);
            if (!seconds.ok()) throw CLI::ValidationError("--keep-for", seconds.status().message());
            policy->keep_for_s = *seconds;
          },
          "Keep what was committed no longer ago than this, as in 36h or 7d")
      ->type_name("TIME")
      ->group(kGroup);
}

std::vector<std::string> retention_arguments(const RetentionPolicy& policy) {
  std::vector<std::string> out;
  auto add = [&](const char* name, uint64_t value) {
    if (value == 0) return;
    out.push_back(name);
    out.push_back(std::to_string(value));
  };
  add("--keep-last", policy.keep_last);
  add("--keep-every", policy.keep_every);
  add("--keep-for", policy.keep_for_s);
  return out;
}

}  // namespace shoal
