// Settings: what a job may be told beyond who is who in it. One table has all of them; each is a flag of
// `shoal launch` (and of `shoal node`, where a node acts by it), a variable, a field of CheckpointerOptions
// and a key of shoal.toml, whose names all follow from the one in the table. docs/reference/settings.md
// is generated from it.
//
// Where a setting is said twice, this order decides: flag or field, variable, the working folder's
// shoal.toml, the root's shoal.toml, default.
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
// The silence after which a session between two nodes is over; a host cannot be lost sooner.
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
enum class SettingOf : uint8_t { node, trainer };  // who acts by it

struct Setting {
  const char* name;  // "keep-last"
  SettingOf of = SettingOf::node;
  SettingKind kind = SettingKind::text;
  const char* group = "";      // of --help
  uint64_t least = 0;          // of a number: count, milliseconds, bytes
  uint64_t most = 0;           // likewise
  const char* initially = "";  // the default as text; "": the help says what then holds
  const char* help = "";
  const char* values = "";  // of a choice, separated by ", "

  std::string flag() const;      // "--keep-last"
  std::string variable() const;  // "SHOAL_KEEP_LAST"
  std::string field() const;     // of CheckpointerOptions: "node.keep_last"
  // What it names could harm a user who did not choose it: a file that is written, a port that is opened.
  // Taken from a file only where that belongs to this user or to root, and lies in the working folder.
  bool is_own_alone() const { return kind == SettingKind::path || kind == SettingKind::address; }
};

std::span<const Setting> all_settings();
const Setting* find_setting(std::string_view name);  // nullptr: there is none
// Variables that say who is who, and no setting of the table: name and what it is for.
struct OtherVariable {
  const char* name;
  const char* help;
};
std::span<const OtherVariable> other_variables();

// "90s", "15m", "36h", "7d", or seconds without a unit. Code::invalid_argument.
Result<uint64_t> parse_duration_s(std::string_view text);

// Values of settings, each with where it was said. Filled from the first in precedence to the last: what has
// been said stays.
class Settings {
 public:
  struct Value {
    std::string text;     // as it was said
    uint64_t number = 0;  // of a number, in the unit of its kind: s, ms or bytes; of a choice, its place
    std::string source;   // "--keep-last", "SHOAL_KEEP_LAST", "/ckpt/run7/shoal.toml:3"
  };
  using Variables = std::function<std::optional<std::string>(const char* name)>;

  // Code::invalid_argument, with the source: no such setting, or no value of it. An error even where an
  // earlier source has said the setting.
  Status set(std::string_view name, std::string_view text, const std::string& source);
  Status add_variables(const Variables& variables);
  // shoal.toml of the working folder and then of the root; either may lack. The same file twice counts as the
  // root's.
  Status add_files(const std::string& root);
  // One file; `is_trusted`: it may say what is_own_alone.
  Status add_file(const std::string& path, bool is_trusted);
  // Settings that contradict each other: Code::invalid_argument names both.
  Status check() const;

  const Value* find(std::string_view name) const;   // nullptr: not said
  uint64_t number_of(std::string_view name) const;  // as it was said, else the default
  const std::map<std::string, Value, std::less<>>& values() const { return values_; }
  // "keep-last 5 (SHOAL_KEEP_LAST), ..."; "" where nothing was said.
  std::string describe() const;

 private:
  std::map<std::string, Value, std::less<>> values_;
};

// What a node logs when it starts: Settings::describe with unknown_variables(); "none" where nothing was
// said.
std::string settings_line(const Settings& settings);

// Variables of this process that begin with SHOAL_ and mean nothing: most likely misspelt. Tests' own
// are none of them: SHOAL_TEST_..., SHOAL_BENCH_..., SHOAL_REQUIRE_...
std::vector<std::string> unknown_variables();

}  // namespace shoal::local
