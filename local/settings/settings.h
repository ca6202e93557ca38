// Settings: the options of a job, except ranks, hosts and other facts that identify its processes. One table
// has all of them. Each is a flag of `shoal launch` (and of `shoal node` if it is a node's setting), an
// environment variable, a field of CheckpointerOptions and a key of shoal.toml. All four names follow from
// the name in the table. docs/reference/settings.md is generated from the table.
//
// If a setting is given several times, the first of these applies: flag or field, environment variable,
// shoal.toml of the working folder, shoal.toml of the root, default.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/status.h"

namespace shoal::local {

inline constexpr const char* kSettingsFile = "shoal.toml";
inline constexpr size_t kMaxSettingsFileBytes = size_t{64} << 10;
inline constexpr size_t kMaxSettingBytes = 4096;  // of one value
inline constexpr uint64_t kMaxSettingTimeMs = uint64_t{24} * 3600 * 1000;
// A session between two nodes ends after this long without a message. host_lost_ms cannot be shorter.
inline constexpr uint64_t kLeastHostLostMs = 2'500;

enum class SettingKind : uint8_t {
  count,
  milliseconds,
  duration,  // as in 36h: parse_duration_s
  bytes,     // as in "1 GiB": parse_bytes
  choice,    // one of `values`
  ports,     // A-B
  text,
  path,
  address,  // HOST:PORT
};
enum class SettingOf : uint8_t { node, trainer };  // which process uses it

struct Setting {
  const char* name;  // "keep-last"
  SettingOf of = SettingOf::node;
  SettingKind kind = SettingKind::text;
  const char* group = "";      // heading in --help
  uint64_t least = 0;          // minimum of a count, milliseconds or bytes
  uint64_t most = 0;           // maximum
  const char* initially = "";  // the default as text; "": `help` describes the default
  const char* help = "";
  const char* values = "";  // the values of a choice, separated by ", "

  std::string flag() const;      // "--keep-last"
  std::string variable() const;  // "SHOAL_KEEP_LAST"
  std::string field() const;     // field of CheckpointerOptions: "node.keep_last"
  // The setting names a file that is written or a port that is opened, which could harm a user who did not
  // choose it. It is accepted from a settings file only if the file is in the working folder and belongs
  // to this user or to root.
  bool is_environment_only() const { return kind == SettingKind::path || kind == SettingKind::address; }
};

std::span<const Setting> all_settings();
const Setting* find_setting(std::string_view name);  // nullptr: there is none
// Environment variables that are not settings of the table, such as SHOAL_ROOT.
struct OtherVariable {
  const char* name;
  const char* help;
};
std::span<const OtherVariable> other_variables();

// "90s", "15m", "36h", "7d", or seconds without a unit. Code::invalid_argument.
Result<uint64_t> parse_duration_s(std::string_view text);

// Values of settings, each with its source. Sources are added in order of precedence: a later source does not
// replace a value that an earlier one gave.
class Settings {
 public:
  struct Value {
    std::string text;     // as it was given
    uint64_t number = 0;  // a number in the unit of its kind (s, ms or bytes), or the index of a choice
    std::string source;   // "--keep-last", "SHOAL_KEEP_LAST", "/ckpt/run7/shoal.toml:3"
  };
  using Variables = std::function<std::optional<std::string>(const char* name)>;

  // Code::invalid_argument names the source: there is no such setting, or `text` is no valid value. The value
  // is checked even if an earlier source gave the setting.
  Status set(std::string_view name, std::string_view text, const std::string& source);
  Status add_variables(const Variables& variables);
  // Adds shoal.toml of the working folder and then of the root; either may be missing. If both are the
  // same file, it counts as the root's.
  Status add_files(const std::string& root);
  // Adds one file. `is_trusted`: it may contain settings that are is_environment_only().
  Status add_file(const std::string& path, bool is_trusted);
  // Code::invalid_argument names two settings that contradict each other.
  Status check() const;

  const Value* find(std::string_view name) const;   // nullptr: not given
  uint64_t number_of(std::string_view name) const;  // the given value, else the default
  const std::map<std::string, Value, std::less<>>& values() const { return values_; }
  // "keep-last 5 (SHOAL_KEEP_LAST), ..."; "" if no setting was given.
  std::string describe() const;

 private:
  std::map<std::string, Value, std::less<>> values_;
};

// The line that a node logs when it starts: Settings::describe with unknown_variables(). "none" if no setting
// was given.
std::string settings_line(const Settings& settings);

// Variables of this process that begin with SHOAL_ and that Shoal does not know: most likely misspelt. It
// leaves out variables of tests: SHOAL_TEST_..., SHOAL_BENCH_..., SHOAL_REQUIRE_...
std::vector<std::string> unknown_variables();
// The variable that a user most likely meant by this name; nullopt: none is similar.
std::optional<std::string> nearest_variable(std::string_view name);

}  // namespace shoal::local
