#include "shoal/dcp/key_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace shoal::dcp {

Status KeyRules::check_prefixes(const ForEachName& for_each_name) const {
  struct Prefix {
    const char* list;
    std::string_view prefix, becomes;
    bool is_used = false;
  };
  std::vector<Prefix> prefixes;
  for (const std::string& each : keep_prefixes) prefixes.push_back({"keep_prefixes", each, each});
  for (const std::string& each : drop_prefixes) prefixes.push_back({"drop_prefixes", each, each});
  for (const auto& [prefix, becomes] : rename_prefixes) {
    prefixes.push_back({"rename_prefixes", prefix, becomes});
  }
  if (prefixes.empty()) return ok_status();
  for_each_name([&](std::string_view name) {
    for (Prefix& each : prefixes) {
      const bool becomes = !each.becomes.empty() && name.starts_with(each.becomes);
      each.is_used = each.is_used || name.starts_with(each.prefix) || becomes;
    }
  });
  std::vector<std::string> unused;
  for (const Prefix& each : prefixes) {
    if (!each.is_used) unused.push_back(fmt::format("KeyRules::{} has '{}'", each.list, each.prefix));
  }
  if (unused.empty()) return ok_status();
  return Status(
      Code::invalid_argument,
      fmt::format("{}: no key of the state or of the checkpoint has this prefix", fmt::join(unused, ", ")));
}

std::optional<std::string> KeyRules::stored_name(std::string_view fqn) const {
  auto begins = [&](const std::string& prefix) { return fqn.starts_with(prefix); };
  if (!keep_prefixes.empty() && std::none_of(keep_prefixes.begin(), keep_prefixes.end(), begins)) {
    return std::nullopt;
  }
  if (std::any_of(drop_prefixes.begin(), drop_prefixes.end(), begins)) return std::nullopt;
  if (filter && !filter(fqn)) return std::nullopt;
  return renamed(fqn);
}

std::string KeyRules::renamed(std::string_view fqn) const {
  std::string name(fqn);
  for (const auto& [prefix, replacement] : rename_prefixes) {
    if (!fqn.starts_with(prefix)) continue;
    name = replacement + name.substr(prefix.size());
    break;
  }
  return rename ? rename(name) : name;
}

}  // namespace shoal::dcp
