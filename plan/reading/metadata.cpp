#include "shoal/metadata.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/layout/holdings.h"
#include "shoal/bytes.h"

namespace shoal {

namespace {

constexpr size_t kMostShown = 80;  // of a key or value, in an error

Status bad_metadata(std::string what) {
  return Status(Code::invalid_argument, "metadata of a save: " + std::move(what));
}

bool is_text(std::string value) {
  for (char& c : value) {
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
  }
  return is_clean_utf8(value);
}

std::string shown(const UserMetadata& user, const std::string& key) {
  auto found = user.find(key);
  return found == user.end() ? "missing" : fmt::format("'{}'", clean_line(found->second, kMostShown));
}

}  // namespace

Status validate_user_metadata(const UserMetadata& user) {
  if (user.size() > kMaxUserKeys) {
    return bad_metadata(fmt::format("{} keys are given: at most {} are allowed", user.size(), kMaxUserKeys));
  }
  size_t bytes = 0;
  for (const auto& [key, value] : user) {
    if (key.empty() || key.size() > kMaxUserKeyBytes || !is_clean_utf8(key)) {
      return bad_metadata(
          fmt::format("key '{}': a key must be 1 to {} bytes of UTF-8 without control "
                      "characters",
                      clean_line(key, kMostShown), kMaxUserKeyBytes));
    }
    if (!is_text(value)) {
      return bad_metadata(
          fmt::format("the value of '{}' is not UTF-8 text: encode bytes as text, for example as base64",
                      clean_line(key, kMostShown)));
    }
    bytes += key.size() + value.size();
  }
  if (bytes > kMaxUserMetadataBytes) {
    return bad_metadata(
        fmt::format("its keys and values take {} bytes, at most {} are allowed: save larger values as "
                    "objects in the state",
                    bytes, kMaxUserMetadataBytes));
  }
  return ok_status();
}

Status check_same_user_metadata(Rank a, const UserMetadata& of_a, Rank b, const UserMetadata& of_b) {
  if (of_a == of_b) return ok_status();
  std::optional<std::string> first;  // the first key that differs
  for (const auto* from : {&of_a, &of_b}) {
    const UserMetadata& other = from == &of_a ? of_b : of_a;
    for (const auto& [key, value] : *from) {
      auto found = other.find(key);
      if (found != other.end() && found->second == value) continue;
      if (!first || key < *first) first = key;
      break;  // the map ascends
    }
  }
  const std::string& key = *first;
  return bad_metadata(fmt::format("'{}' is {} on rank {} and {} on rank {}: give the same value on all ranks",
                                  clean_line(key, kMostShown), shown(of_a, key), a, shown(of_b, key), b));
}

std::string to_string(const AttemptKey& key) {
  if (key.attempt == 0) return fmt::format("step {}", key.step);  // the attempt is unknown
  return fmt::format("step {} (g{}a{})", key.step, key.generation, key.attempt);
}

WorldValues::WorldValues(const World& world) {
  std::vector<std::vector<const LayoutEntry*>> rank_entries(world.layouts.size());  // by layout
  auto add = [&](uint32_t layout, const LayoutEntry& entry) {
    if (is_per_rank(entry)) {
      rank_entries[layout].push_back(&entry);
      return false;
    }
    values_.push_back({&entry.fqn, &entry});
    return true;
  };
  if (world.layouts.size() == 1) {
    values_.reserve(world.layouts.front()->entries().size());
    for (const LayoutEntry& entry : world.layouts.front()->entries()) add(0, entry);
  } else {
    const plan::FqnIndex index = plan::FqnIndex::of_world(world);
    values_.reserve(index.size());
    for (uint32_t value = 0; value < index.size(); ++value) {
      for (const plan::Site site : index.sites(value)) {
        // One site is enough: all others describe the same value.
        if (add(site.layout, world.layouts[site.layout]->entries()[site.entry])) break;
      }
    }
  }
  const Roster& roster = world.roster;
  for (size_t i = 0; i < roster.layout_runs().size(); ++i) {
    const Run& run = roster.layout_runs()[i];
    for (const LayoutEntry* entry : rank_entries[run.value]) {
      for (uint32_t k = 0; k < run.count; ++k) {
        names_.push_back(value_fqn(*entry, roster.layout_starts()[i] + k));
        values_.push_back({&names_.back(), entry});
      }
    }
  }
  if (names_.empty()) return;  // values_ is already in order
  std::sort(values_.begin(), values_.end(), [](const Value& a, const Value& b) { return *a.fqn < *b.fqn; });
  const auto same_fqn = [](const Value& a, const Value& b) { return *a.fqn == *b.fqn; };
  values_.erase(std::unique(values_.begin(), values_.end(), same_fqn), values_.end());
}

std::vector<TensorMetadata> list_values(const World& world) {
  const WorldValues listed(world);
  std::vector<TensorMetadata> values;
  values.reserve(listed.size());
  for (size_t i = 0; i < listed.size(); ++i) {
    const LayoutEntry& entry = *listed[i].entry;
    TensorMetadata& value = values.emplace_back();
    value.fqn = *listed[i].fqn;
    value.kind = entry.kind;
    value.dtype = entry.dtype;
    value.shape = entry.shape;
  }
  return values;
}

}  // namespace shoal
