#include "sim/jobs/stragglers.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "sim/basics/random.h"

namespace shoal::sim {

namespace {

// Parses a decimal such as "0.01", in thousandths.
std::optional<uint64_t> parse_permille(std::string_view text) {
  const size_t point = text.find('.');
  const std::string_view places = point == std::string_view::npos ? "" : text.substr(point + 1);
  const std::string_view whole = text.substr(0, point);
  if (whole.empty() || whole.size() > 6 || places.size() > 3) return std::nullopt;
  if (point != std::string_view::npos && places.empty()) return std::nullopt;
  std::string digits(whole);
  digits.append(places).append(3 - places.size(), '0');
  uint64_t value = 0;
  for (char digit : digits) {
    if (digit < '0' || digit > '9') return std::nullopt;
    value = value * 10 + static_cast<uint64_t>(digit - '0');
  }
  return value;
}

std::string times(uint32_t permille) {
  return permille % 1000 == 0 ? fmt::format("x{}", permille / 1000)
                              : fmt::format("x{}.{:03}", permille / 1000, permille % 1000);
}

}  // namespace

std::string to_string(const Stragglers& stragglers) {
  if (stragglers.hosts_permille == 0) return "";
  return fmt::format("{} in a thousand hosts are slow: copies {}, network {}, storage {}",
                     stragglers.hosts_permille, times(stragglers.copy_permille),
                     times(stragglers.network_permille), times(stragglers.storage_permille));
}

Result<Stragglers> parse_stragglers(std::string_view text) {
  const size_t colon = text.find(':');
  const auto fraction = parse_permille(text.substr(0, colon));
  const auto factor = colon == std::string_view::npos ? std::nullopt : parse_permille(text.substr(colon + 1));
  if (!fraction || !factor || *fraction > 1000 || *factor < 1000 || *factor > kMostSlownessPermille) {
    return Status(Code::invalid_argument,
                  fmt::format("stragglers: '{}' is not FRACTION:FACTOR, such as 0.01:3 (a fraction up to 1, "
                              "a factor from 1 to 1000, at most three decimals)",
                              text));
  }
  const auto slow = static_cast<uint32_t>(*factor);
  return Stragglers{static_cast<uint32_t>(*fraction), slow, slow, slow};
}

Result<Stragglers> parse_stragglers(const TomlTable& table) {
  static constexpr std::string_view kKeys[] = {"hosts_permille", "copy_permille", "network_permille",
                                               "storage_permille"};
  SHOAL_RETURN_IF_ERROR(table.allow_only(kKeys));
  Stragglers stragglers;
  auto number = [&](std::string_view key, uint32_t* into, int64_t least, int64_t most) -> Status {
    SHOAL_ASSIGN_OR_RETURN(int64_t value, table.integer(key, least, most, *into));
    *into = static_cast<uint32_t>(value);
    return ok_status();
  };
  if (table.find("hosts_permille") == nullptr)
    return table.error(table.line, "stragglers need the key hosts_permille");
  SHOAL_RETURN_IF_ERROR(number("hosts_permille", &stragglers.hosts_permille, 0, 1000));
  SHOAL_RETURN_IF_ERROR(number("copy_permille", &stragglers.copy_permille, 1000, kMostSlownessPermille));
  SHOAL_RETURN_IF_ERROR(
      number("network_permille", &stragglers.network_permille, 1000, kMostSlownessPermille));
  SHOAL_RETURN_IF_ERROR(
      number("storage_permille", &stragglers.storage_permille, 1000, kMostSlownessPermille));
  return stragglers;
}

std::vector<uint32_t> draw_stragglers(const Stragglers& stragglers, uint32_t hosts, uint64_t seed) {
  if (stragglers.hosts_permille == 0) return {};
  std::vector<uint32_t> drawn(hosts);
  std::iota(drawn.begin(), drawn.end(), 0);
  const uint64_t wanted = std::max<uint64_t>(1, uint64_t{hosts} * stragglers.hosts_permille / 1000);
  Random random(seed);
  for (uint64_t i = 0; i < wanted; ++i) std::swap(drawn[i], drawn[i + random.below(hosts - i)]);
  drawn.resize(wanted);
  std::sort(drawn.begin(), drawn.end());
  return drawn;
}

}  // namespace shoal::sim
