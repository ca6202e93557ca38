#include "local/settings/settings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/edit_distance.h"
#include "base/host_port.h"
#include "shoal/bytes.h"

extern char** environ;

namespace shoal::local {

namespace {

constexpr uint64_t kMaxDurationS = uint64_t{100} * 365 * 24 * 3600;

Status invalid(std::string what) {
  return Status(Code::invalid_argument, std::move(what));
}

struct Unit {
  char letter;
  uint64_t seconds;
};
constexpr Unit kUnits[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 604800}};

std::optional<uint64_t> whole_number(std::string_view text) {
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Result<uint64_t> parse_number(const Setting& setting, std::string_view text) {
  const bool is_bytes = setting.kind == SettingKind::bytes;
  std::optional<uint64_t> value = whole_number(text);
  if (is_bytes) {
    SHOAL_ASSIGN_OR_RETURN(value, parse_bytes(text));
  }
  if (value && *value >= setting.least && *value <= setting.most) return *value;
  if (is_bytes) {
    return invalid(fmt::format("{} is out of range: from {} to {} are allowed", text,
                               human_bytes(setting.least), human_bytes(setting.most)));
  }
  return invalid(fmt::format("'{}' is not a number from {} to {}", text, setting.least, setting.most));
}

// The index of `text` among the values.
Result<uint64_t> parse_choice(const Setting& setting, std::string_view text) {
  std::string_view left = setting.values;
  for (uint64_t place = 0; !left.empty(); ++place) {
    const std::string_view value = left.substr(0, left.find(", "));
    if (value == text) return place;
    left.remove_prefix(std::min(value.size() + 2, left.size()));
  }
  return invalid(fmt::format("'{}' is not a value of {}: use one of {}", text, setting.name, setting.values));
}

Result<uint64_t> parse_ports(std::string_view text) {
  const size_t dash = text.find('-');
  if (dash != std::string_view::npos) {
    const auto first = whole_number(text.substr(0, dash)), last = whole_number(text.substr(dash + 1));
    if (first && last && *first != 0 && *first <= *last && *last <= UINT16_MAX) return uint64_t{0};
  }
  return invalid(fmt::format("'{}' is not a range of ports: write FIRST-LAST, for example 7100-7199", text));
}

Result<uint64_t> parse_value(const Setting& setting, std::string_view text) {
  if (text.empty()) return invalid("the value is empty");
  if (text.size() > kMaxSettingBytes) {
    return invalid(
        fmt::format("the value has {} bytes: at most {} are allowed", text.size(), kMaxSettingBytes));
  }
  if (!is_clean_utf8(text)) return invalid("the value is not UTF-8 text without control characters");
  switch (setting.kind) {
    case SettingKind::count:
    case SettingKind::milliseconds:
    case SettingKind::bytes:
      return parse_number(setting, text);
    case SettingKind::duration:
      return parse_duration_s(text);
    case SettingKind::choice:
      return parse_choice(setting, text);
    case SettingKind::ports:
      return parse_ports(text);
    case SettingKind::address:
      SHOAL_RETURN_IF_ERROR(base::parse_host_port(text).status());
      return uint64_t{0};
    case SettingKind::text:
    case SettingKind::path:
      break;
  }
  return uint64_t{0};
}

bool is_of_tests(std::string_view name) {
  return name.starts_with("SHOAL_TEST_") || name.starts_with("SHOAL_BENCH_") ||
         name.starts_with("SHOAL_REQUIRE_");
}

// The setting that a user most likely meant by a key of a file.
std::optional<std::string> nearest_setting(std::string_view given) {
  std::string with_dashes(given);
  std::replace(with_dashes.begin(), with_dashes.end(), '_', '-');
  std::vector<std::string> names;
  for (const Setting& setting : all_settings()) names.emplace_back(setting.name);
  return base::nearest_name(with_dashes, names);
}

std::string with_underscores(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

}  // namespace

std::string Setting::flag() const {
  return std::string("--") + name;
}

std::string Setting::variable() const {
  std::string out = "SHOAL_" + with_underscores(name);
  for (char& letter : out) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return out;
}

// The name of a field ends with its unit unless the type implies it.
std::string Setting::field() const {
  std::string out = with_underscores(name);
  const bool names_bytes = out.find("bytes") != std::string::npos;
  if (of == SettingOf::node) {
    if (kind == SettingKind::bytes && !names_bytes) out += "_bytes";
    if (kind == SettingKind::duration) out += "_s";
    return "node." + out;
  }
  if (kind == SettingKind::milliseconds) out.resize(out.size() - std::string_view("_ms").size());
  if (out.starts_with("save_")) out[4] = '.';
  return out;
}

const Setting* find_setting(std::string_view name) {
  for (const Setting& setting : all_settings()) {
    if (setting.name == name) return &setting;
  }
  return nullptr;
}

Result<uint64_t> parse_duration_s(std::string_view text) {
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
    return invalid(fmt::format(
        "'{}' is not a duration of at most 100 years: write it as in 90s, 15m, 36h, 7d or 2w", text));
  }
  return number * unit_s;
}

Status Settings::set(std::string_view name, std::string_view text, const std::string& source) {
  const Setting* setting = find_setting(name);
  if (setting == nullptr) {
    const std::optional<std::string> nearest = nearest_setting(name);
    return invalid(fmt::format("{}: '{}' is not a setting: {}", source, name,
                               nearest ? fmt::format("did you mean '{}'?", *nearest)
                                       : std::string("`shoal settings` lists all settings")));
  }
  Result<uint64_t> number = parse_value(*setting, text);
  if (!number.ok()) {
    const bool is_named = source == setting->flag() || source == setting->variable();
    return number.status().with_context(is_named ? source : fmt::format("{}: {}", source, name));
  }
  values_.emplace(std::string(name), Value{std::string(text), *number, source});
  return ok_status();
}

Status Settings::add_variables(const Variables& variables) {
  for (const Setting& setting : all_settings()) {
    const std::string variable = setting.variable();
    const std::optional<std::string> text = variables(variable.c_str());
    if (text && !text->empty()) SHOAL_RETURN_IF_ERROR(set(setting.name, *text, variable));
  }
  return ok_status();
}

const Settings::Value* Settings::find(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

uint64_t Settings::number_of(std::string_view name) const {
  if (const Value* value = find(name)) return value->number;
  const Setting* setting = find_setting(name);
  if (setting == nullptr || *setting->initially == '\0') return 0;
  return parse_value(*setting, setting->initially).value();
}

Status Settings::check() const {
  auto message = [&](const char* name) {
    const Value* value = find(name);
    return fmt::format("{} {} ({})", name, number_of(name), value ? value->source : "the default");
  };
  auto too_short = [&](const char* name, const char* other, uint64_t least) {
    return invalid(
        fmt::format("{} is too short for {}: it must be at least {}", message(name), message(other), least));
  };
  const uint64_t attempt_ms = number_of("attempt-deadline-ms"), renew_ms = number_of("lease-renew-ms");
  if (number_of("node-deadline-ms") <= attempt_ms) {
    return too_short("node-deadline-ms", "attempt-deadline-ms", attempt_ms + 1);
  }
  // Otherwise a process that checks the lease twice between two renewals would take a live load for an ended
  // one.
  if (number_of("lease-ttl-ms") < 2 * renew_ms)
    return too_short("lease-ttl-ms", "lease-renew-ms", 2 * renew_ms);
  if (find("host-lost-ms") && number_of("host-lost-ms") >= attempt_ms) {
    return invalid(fmt::format(
        "{} has no effect, because {} aborts the save first: lower the former or raise the latter",
        message("host-lost-ms"), message("attempt-deadline-ms")));
  }
  return ok_status();
}

std::string Settings::describe() const {
  std::string out;
  for (const auto& [name, value] : values_) {
    out += fmt::format("{}{} {} ({})", out.empty() ? "" : ", ", name, value.text, value.source);
  }
  return out;
}

std::string settings_line(const Settings& settings) {
  std::string out = settings.describe();
  if (out.empty()) out = "none";
  for (const std::string& name : unknown_variables()) out += fmt::format("; {} is not a setting", name);
  return out;
}

std::vector<std::string> unknown_variables() {
  std::vector<std::string> out;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    const std::string_view line = *each;
    const std::string_view name = line.substr(0, line.find('='));
    if (!name.starts_with("SHOAL_") || is_of_tests(name)) continue;
    const auto is_other = [&](const OtherVariable& other) { return other.name == name; };
    const auto is_setting = [&](const Setting& setting) { return setting.variable() == name; };
    if (std::ranges::any_of(other_variables(), is_other)) continue;
    if (std::ranges::any_of(all_settings(), is_setting)) continue;
    out.emplace_back(name);
  }
  return out;
}

std::optional<std::string> nearest_variable(std::string_view name) {
  std::vector<std::string> names;
  for (const Setting& setting : all_settings()) names.push_back(setting.variable());
  for (const OtherVariable& other : other_variables()) names.emplace_back(other.name);
  return base::nearest_name(name, names);
}

}  // namespace shoal::local
