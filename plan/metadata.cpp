#include "plan/metadata.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/holdings.h"

namespace shoal {

std::string to_string(const AttemptKey& key) {
  if (key.attempt == 0) return fmt::format("step {}", key.step);  // of no attempt known
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
    const FqnIndex index = FqnIndex::of_world(world);
    values_.reserve(index.size());
    for (uint32_t value = 0; value < index.size(); ++value) {
      for (const Site site : index.sites(value)) {
        if (add(site.layout, world.layouts[site.layout]->entries()[site.entry])) break;  // all mean the same
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
  if (names_.empty()) return;  // in their order
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
