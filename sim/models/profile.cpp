#include "sim/models/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

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

Status read_field(const TomlTable& table, const Field& field, Profile& profile) {
  const std::string key = fmt::format("{}.{}", field.table, field.key);
  SHOAL_ASSIGN_OR_RETURN(auto stated, table.table(field.key));
  if (!stated && field.may_lack) return ok_status();
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
  profile.numbers.push_back({key, fmt::to_string(value), kind, source});
  return ok_status();
}

Status read_table(const TomlTable& file, std::string_view name, Profile& profile) {
  SHOAL_ASSIGN_OR_RETURN(auto table, file.table(name));
  if (!table && name == "items") return ok_status();
  if (!table) return file.error(file.line, fmt::format("the table [{}] is missing", name));
  std::vector<std::string_view> keys;
  if (name == "storage") keys.push_back("interface");
  for (const Field& field : kFields) {
    if (field.table == name) keys.push_back(field.key);
  }
  SHOAL_RETURN_IF_ERROR(table->allow_only(keys));
  for (const Field& field : kFields) {
    if (field.table == name) SHOAL_RETURN_IF_ERROR(read_field(*table, field, profile));
  }
  if (name != "storage") return ok_status();
  SHOAL_ASSIGN_OR_RETURN(std::string interface, table->text("interface", ""));
  if (interface != "files" && interface != "objects") {
    return table->error(table->line, "storage.interface must be 'files' or 'objects'");
  }
  profile.storage.is_objects = interface == "objects";
  return ok_status();
}

}  // namespace

uint64_t NetworkCosts::uplink_bytes_per_s() const {
  return std::max<uint64_t>(
      1, multiply_divide(bytes_per_s, uint64_t{hosts_per_rack} * 1000, oversubscription_permille));
}

Result<Profile> parse_profile(std::string_view text, const std::string& file) {
  SHOAL_ASSIGN_OR_RETURN(TomlTable parsed, parse_toml(text, file));
  static constexpr std::string_view kTables[] = {"name",  "about",   "network", "cpu",
                                                 "items", "trainer", "storage"};
  SHOAL_RETURN_IF_ERROR(parsed.allow_only(kTables));
  Profile profile;
  profile.text = text;
  SHOAL_ASSIGN_OR_RETURN(profile.name, parsed.text("name", ""));
  SHOAL_ASSIGN_OR_RETURN(profile.about, parsed.text("about", ""));
  if (profile.name.empty()) return parsed.error(1, "the profile has no name");
  for (std::string_view table : {"network", "cpu", "items", "trainer", "storage"}) {
    SHOAL_RETURN_IF_ERROR(read_table(parsed, table, profile));
  }
  return profile;
}

Result<Profile> with_number(Profile profile, std::string_view key, int64_t value) {
  const auto number = std::find_if(profile.numbers.begin(), profile.numbers.end(),
                                   [&](const Profile::Number& each) { return each.key == key; });
  for (const Field& field : kFields) {
    if (number == profile.numbers.end() || fmt::format("{}.{}", field.table, field.key) != key) continue;
    if (value < field.least || value > field.most) {
      return Status(Code::invalid_argument, fmt::format("{} = {}: it must lie between {} and {}", key, value,
                                                        field.least, field.most));
    }
    field.set(profile, value);
    number->value = fmt::to_string(value);
    return profile;
  }
  return Status(Code::invalid_argument, fmt::format("profile {} has no number {}", profile.name, key));
}

Result<Profile> find_profile(const std::string& name_or_path, const std::vector<std::string>& folders) {
  std::string path = name_or_path;
  if (name_or_path.find('/') == std::string::npos && !name_or_path.ends_with(".toml")) {
    for (const std::string& folder : folders) {
      path = folder + "/" + name_or_path + ".toml";
      if (std::filesystem::exists(path)) break;
    }
    if (folders.empty() || !std::filesystem::exists(path)) {
      const std::vector<std::string> names = list_profiles(folders);
      return Status(
          Code::not_found,
          fmt::format("no profile '{}'; {}", name_or_path,
                      names.empty() ? fmt::format("the built-in profiles are not in {}, so give the "
                                                  "path of a .toml file",
                                                  fmt::join(folders, ", "))
                                    : fmt::format("built-in profiles are {}", fmt::join(names, ", "))));
    }
  }
  SHOAL_ASSIGN_OR_RETURN(std::string text, read_text(path));
  return parse_profile(text, path);
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
