#include "sim/models/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "base/edit_distance.h"
#include "sim/basics/integer_math.h"
#include "sim/basics/toml_tree.h"

namespace shoal::sim {

namespace {

constexpr int64_t kMostNs = 60'000'000'000;
constexpr int64_t kMostRate = int64_t{1} << 50;
constexpr std::string_view kKinds[] = {"measured", "published", "assumed"};

struct Field {
  std::string_view table, key;
  int64_t least = 0, most = 0;
  void (*set)(Profile& profile, int64_t value) = nullptr;
  bool may_lack = false;  // if it is missing, it has the default of the header, which models nothing
};

#define SHOAL_NS(table, name)                                                   \
  {                                                                             \
#table, #name, 0, kMostNs, [](Profile & p, int64_t v) { p.table.name = v; } \
  }
#define SHOAL_RATE(table, name)                                                                          \
  {                                                                                                      \
#table, #name, 1, kMostRate, [](Profile & p, int64_t v) { p.table.name = static_cast<uint64_t>(v); } \
  }
#define SHOAL_OPTIONAL(table, name, least, most)                                                    \
  {                                                                                                 \
#table, #name, least, most,                                                                     \
        [](Profile & p, int64_t v) { p.table.name = static_cast<decltype(p.table.name)>(v); }, true \
  }
#define SHOAL_COUNT(table, name, least, most)                                                           \
  {                                                                                                     \
#table, #name, least, most, [](Profile & p, int64_t v) { p.table.name = static_cast<uint32_t>(v); } \
  }

constexpr Field kFields[] = {
    SHOAL_NS(network, latency_ns),
    SHOAL_NS(network, message_ns),
    SHOAL_RATE(network, bytes_per_s),
    SHOAL_OPTIONAL(network, hosts_per_rack, 0, 100'000),
    SHOAL_OPTIONAL(network, oversubscription_permille, 1000, 100'000),
    SHOAL_OPTIONAL(network, rack_latency_ns, 0, kMostNs),
    SHOAL_NS(cpu, message_ns),
    SHOAL_RATE(cpu, codec_bytes_per_s),
    SHOAL_NS(cpu, event_ns),
    SHOAL_NS(cpu, local_latency_ns),
    SHOAL_NS(cpu, plan_item_ns),
    SHOAL_OPTIONAL(cpu, check_item_ns, 0, kMostNs),
    SHOAL_NS(cpu, write_item_ns),
    SHOAL_OPTIONAL(cpu, coordinator_speed_permille, 1, 1'000'000),
    SHOAL_OPTIONAL(cpu, shared_cores, 0, 4096),
    SHOAL_NS(items, local_ns),
    SHOAL_NS(items, encode_ns),
    SHOAL_NS(items, decode_ns),
    SHOAL_COUNT(items, item_bytes, 0, 1'000'000),
    SHOAL_NS(items, dedupe_ns),
    SHOAL_NS(items, plan_ns),
    SHOAL_COUNT(items, kept, 0, 2),
    SHOAL_NS(items, result_encode_ns),
    SHOAL_NS(items, result_decode_ns),
    SHOAL_COUNT(items, result_bytes, 0, 1'000'000),
    SHOAL_NS(items, record_ns),
    SHOAL_NS(items, record_decode_ns),
    SHOAL_COUNT(items, record_bytes, 0, 1'000'000),
    SHOAL_COUNT(items, deadline_s, 0, 24 * 3600),
    SHOAL_RATE(trainer, copy_bytes_per_s),
    SHOAL_OPTIONAL(trainer, call_ns, 0, kMostNs),
    SHOAL_OPTIONAL(trainer, item_ns, 0, kMostNs),
    SHOAL_NS(storage, round_trip_ns),
    SHOAL_NS(storage, change_ns),
    SHOAL_NS(storage, look_ns),
    SHOAL_NS(storage, entry_ns),
    SHOAL_COUNT(storage, entries_per_request, 1, 1'000'000),
    SHOAL_NS(storage, sync_ns),
    SHOAL_RATE(storage, client_bytes_per_s),
    SHOAL_RATE(storage, total_bytes_per_s),
    SHOAL_COUNT(storage, request_tail_permille, 0, 2000),
    SHOAL_COUNT(storage, stream_tail_permille, 0, 2000),
    SHOAL_NS(storage, catalog_ns),
    SHOAL_OPTIONAL(storage, prefix_split_after_s, 0, 7 * 24 * 3600),
    SHOAL_OPTIONAL(storage, part_bytes, 5 << 20, int64_t{5} << 30),
};

#undef SHOAL_NS
#undef SHOAL_RATE
#undef SHOAL_COUNT
#undef SHOAL_OPTIONAL

std::string name_of_number(const Field& field) {
  return fmt::format("{}.{}", field.table, field.key);
}

const Field* field_named(std::string_view key) {
  const auto found = std::find_if(std::begin(kFields), std::end(kFields),
                                  [&](const Field& each) { return name_of_number(each) == key; });
  return found == std::end(kFields) ? nullptr : found;
}

// Replaces the number of a profile, or adds it in the order of the table.
void put_number(Profile& profile, const Field& field, Profile::Number number) {
  auto at = profile.numbers.begin();
  for (const Field* each = kFields; each != &field; ++each) {
    if (at != profile.numbers.end() && at->key == name_of_number(*each)) ++at;
  }
  if (at == profile.numbers.end() || at->key != number.key) at = profile.numbers.emplace(at);
  *at = std::move(number);
}

// `extends`: what is missing is as in the profile that this one extends.
Status read_field(const TomlTable& table, const Field& field, bool extends, Profile& profile) {
  const std::string key = name_of_number(field);
  SHOAL_ASSIGN_OR_RETURN(auto stated, table.table(field.key));
  if (!stated && (field.may_lack || extends)) return ok_status();
  if (!stated) return table.error(table.line, key + " is missing");
  static constexpr std::string_view kParts[] = {"value", "kind", "source"};
  SHOAL_RETURN_IF_ERROR(stated->allow_only(kParts));
  if (stated->find("value") == nullptr) return stated->error(stated->line, key + " has no value");
  SHOAL_ASSIGN_OR_RETURN(int64_t value, stated->integer("value", field.least, field.most, 0));
  SHOAL_ASSIGN_OR_RETURN(std::string kind, stated->text("kind", ""));
  SHOAL_ASSIGN_OR_RETURN(std::string source, stated->text("source", ""));
  if (std::find(std::begin(kKinds), std::end(kKinds), kind) == std::end(kKinds)) {
    return stated->error(stated->line,
                         fmt::format("{}: its kind must be one of {}", key, fmt::join(kKinds, ", ")));
  }
  if (source.find_first_not_of(" \t\r\n") == std::string::npos) {
    return stated->error(stated->line, key + " names no source");
  }
  field.set(profile, value);
  put_number(profile, field, {key, fmt::to_string(value), kind, source});
  return ok_status();
}

// `extends`: the profile has the numbers of another one already.
Status read_table(const TomlTable& file, std::string_view name, bool extends, Profile& profile) {
  SHOAL_ASSIGN_OR_RETURN(auto table, file.table(name));
  if (!table && (name == "items" || extends)) return ok_status();
  if (!table) return file.error(file.line, fmt::format("the table [{}] is missing", name));
  std::vector<std::string_view> keys;
  if (name == "storage") keys.push_back("interface");
  for (const Field& field : kFields) {
    if (field.table == name) keys.push_back(field.key);
  }
  SHOAL_RETURN_IF_ERROR(table->allow_only(keys));
  const bool lacks_items = name == "items" && !profile.items.is_modelled();
  for (const Field& field : kFields) {
    if (field.table == name)
      SHOAL_RETURN_IF_ERROR(read_field(*table, field, extends && !lacks_items, profile));
  }
  if (name != "storage" || (extends && table->find("interface") == nullptr)) return ok_status();
  SHOAL_ASSIGN_OR_RETURN(std::string interface, table->text("interface", ""));
  if (interface != "files" && interface != "objects") {
    return table->error(table->line, "storage.interface must be 'files' or 'objects'");
  }
  profile.storage.is_objects = interface == "objects";
  return ok_status();
}

bool is_path(std::string_view name_or_path) {
  return name_or_path.find('/') != std::string_view::npos || name_or_path.ends_with(".toml");
}

Result<Profile> parse_extending(std::string_view text, const std::string& file,
                                const std::vector<std::string>& folders, uint32_t extended);

Result<Profile> find_extended(const std::string& name_or_path, const std::vector<std::string>& folders,
                              uint32_t extended) {
  std::string path = name_or_path;
  if (!is_path(name_or_path)) {
    for (const std::string& folder : folders) {
      path = folder + "/" + name_or_path + ".toml";
      if (std::filesystem::exists(path)) break;
    }
    if (folders.empty() || !std::filesystem::exists(path)) {
      const std::vector<std::string> names = list_profiles(folders);
      const auto nearest = base::nearest_name(name_or_path, names);
      return Status(
          Code::not_found,
          fmt::format("no profile '{}'{} {}", name_or_path,
                      nearest ? fmt::format(": did you mean '{}'?", *nearest) : ";",
                      names.empty() ? fmt::format("the built-in profiles are not in {}, so give the "
                                                  "path of a .toml file",
                                                  fmt::join(folders, " or "))
                                    : fmt::format("built-in profiles are {}", fmt::join(names, ", "))));
    }
  }
  SHOAL_ASSIGN_OR_RETURN(std::string text, read_text(path));
  return parse_extending(text, path, folders, extended);
}

// What the profile extends, or an empty one.
Result<Profile> extended_by(const TomlTable& parsed, const std::string& file,
                            const std::vector<std::string>& folders, uint32_t extended) {
  SHOAL_ASSIGN_OR_RETURN(std::string base, parsed.text("extends", ""));
  if (base.empty()) return Profile();
  const uint32_t line = parsed.find("extends")->line;
  if (extended == kMostExtended) {
    return parsed.error(line, fmt::format("extends: at most {} profiles may extend one another, and none "
                                          "itself",
                                          kMostExtended));
  }
  const std::filesystem::path path(base);
  if (is_path(base) && path.is_relative()) base = std::filesystem::path(file).parent_path() / path;
  auto found = find_extended(base, folders, extended + 1);
  if (!found.ok()) return parsed.error(line, "extends: " + found.status().message());
  return found;
}

Result<Profile> parse_extending(std::string_view text, const std::string& file,
                                const std::vector<std::string>& folders, uint32_t extended) {
  SHOAL_ASSIGN_OR_RETURN(TomlTable parsed, parse_toml(text, file));
  static constexpr std::string_view kTables[] = {"name", "about", "extends", "network",
                                                 "cpu",  "items", "trainer", "storage"};
  SHOAL_RETURN_IF_ERROR(parsed.allow_only(kTables));
  SHOAL_ASSIGN_OR_RETURN(Profile profile, extended_by(parsed, file, folders, extended));
  const bool extends = parsed.find("extends") != nullptr;
  SHOAL_ASSIGN_OR_RETURN(profile.name,
                         parsed.text("name", extends ? std::filesystem::path(file).stem().string() : ""));
  SHOAL_ASSIGN_OR_RETURN(profile.about, parsed.text("about", profile.about));
  if (profile.name.empty()) return parsed.error(1, "the profile has no name");
  for (std::string_view table : {"network", "cpu", "items", "trainer", "storage"}) {
    SHOAL_RETURN_IF_ERROR(read_table(parsed, table, extends, profile));
  }
  return profile;
}

// All numbers that a profile may have. A key without its table is compared with their last parts.
std::optional<std::string> nearest_number(std::string_view key) {
  const bool has_table = key.find('.') != std::string_view::npos;
  std::vector<std::string> names;
  for (const Field& field : kFields) {
    names.push_back(has_table ? name_of_number(field) : std::string(field.key));
  }
  const auto nearest = base::nearest_name(key, names);
  if (!nearest || has_table) return nearest;
  const auto at = static_cast<size_t>(std::find(names.begin(), names.end(), *nearest) - names.begin());
  return name_of_number(kFields[at]);
}

}  // namespace

uint64_t NetworkCosts::uplink_bytes_per_s() const {
  return std::max<uint64_t>(
      1, multiply_divide(bytes_per_s, uint64_t{hosts_per_rack} * 1000, oversubscription_permille));
}

Result<Profile> parse_profile(std::string_view text, const std::string& file,
                              const std::vector<std::string>& folders) {
  return parse_extending(text, file, folders, 0);
}

std::string profile_text(const Profile& profile) {
  std::string text = fmt::format("name = {}\n", toml_string(profile.name));
  if (!profile.about.empty()) text += fmt::format("about = {}\n", toml_string(profile.about));
  std::string_view table;
  for (const Profile::Number& number : profile.numbers) {
    const std::string_view key = number.key;
    const size_t dot = key.find('.');
    if (table != key.substr(0, dot)) {
      table = key.substr(0, dot);
      text += fmt::format("\n[{}]\n", table);
      if (table == "storage") {
        text += fmt::format("interface = \"{}\"\n", profile.storage.is_objects ? "objects" : "files");
      }
    }
    text += fmt::format("{} = {{ value = {}, kind = {}, source = {} }}\n", key.substr(dot + 1), number.value,
                        toml_string(number.kind), toml_string(number.source));
  }
  return text;
}

Status check_number(std::string_view key, int64_t value) {
  const Field* field = field_named(key);
  if (field == nullptr) {
    const auto nearest = nearest_number(key);
    return Status(Code::invalid_argument,
                  fmt::format("'{}' is no number of a profile{} --show-profile prints them", key,
                              nearest ? fmt::format(": did you mean '{}'?", *nearest) : ";"));
  }
  if (value >= field->least && value <= field->most) return ok_status();
  return Status(Code::invalid_argument,
                fmt::format("{} = {}: it must lie between {} and {}", key, value, field->least, field->most));
}

Result<Profile> with_number(Profile profile, std::string_view key, int64_t value) {
  SHOAL_RETURN_IF_ERROR(check_number(key, value));
  const Field& field = *field_named(key);
  const auto number = std::find_if(profile.numbers.begin(), profile.numbers.end(),
                                   [&](const Profile::Number& each) { return each.key == key; });
  if (number != profile.numbers.end()) {
    number->value = fmt::to_string(value);
  } else if (field.may_lack) {
    put_number(profile, field, {std::string(key), fmt::to_string(value), "assumed", "not in the profile"});
  } else {
    return Status(Code::invalid_argument,
                  fmt::format("profile {} has no table [{}], so {} cannot be set alone", profile.name,
                              field.table, key));
  }
  field.set(profile, value);
  return profile;
}

Result<Profile> with_numbers(Profile profile, const std::map<std::string, int64_t>& values) {
  for (const auto& [key, value] : values) {
    SHOAL_ASSIGN_OR_RETURN(profile, with_number(std::move(profile), key, value));
    for (Profile::Number& number : profile.numbers) {
      if (number.key == key) number.kind = "assumed", number.source = "stated by --set";
    }
  }
  return profile;
}

Result<Profile> find_profile(const std::string& name_or_path, const std::vector<std::string>& folders) {
  return find_extended(name_or_path, folders, 0);
}

std::vector<std::string> list_profiles(const std::vector<std::string>& folders) {
  std::set<std::string> names;
  for (const std::string& folder : folders) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".toml") names.insert(entry.path().stem().string());
    }
  }
  return {names.begin(), names.end()};
}

}  // namespace shoal::sim
