// A value of any setting, for tests that go through the table.
#pragma once

#include <string>

#include "local/settings/settings.h"

namespace shoal::local {

// A valid value that is not the default.
inline std::string sample_of(const Setting& setting) {
  switch (setting.kind) {
    case SettingKind::choice:
      return std::string(setting.values).substr(std::string(setting.values).rfind(' ') + 1);
    case SettingKind::ports:
      return "7100-7199";
    case SettingKind::text:
      return "eth1";
    case SettingKind::path:
      return "/nowhere/file";
    case SettingKind::address:
      return "10.0.0.1:9100";
    case SettingKind::count:
    case SettingKind::milliseconds:
    case SettingKind::duration:
    case SettingKind::bytes:
      break;
  }
  // Deadlines are compared with each other's defaults.
  const std::string initially = setting.initially;
  const bool is_number = !initially.empty() && initially.find_first_not_of("0123456789") == std::string::npos;
  return std::to_string((is_number ? std::stoull(initially) : setting.least) + 7);
}

}  // namespace shoal::local
