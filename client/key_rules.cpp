#include "client/key_rules.h"

#include <algorithm>

namespace shoal::dcp {

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
