#include "plan/metadata.h"

#include <fmt/format.h>

#include <algorithm>

namespace shoal {

std::string to_string(const AttemptKey& key) {
  return fmt::format("step {} (g{}a{})", key.step, key.generation, key.attempt);
}

std::vector<TensorMetadata> list_values(const World& world) {
  std::vector<TensorMetadata> values;
  std::vector<std::vector<const LayoutEntry*>> rank_entries(world.layouts.size());  // by layout
  if (world.layouts.size() == 1) values.reserve(world.layouts.front()->entries().size());
  for (size_t i = 0; i < world.layouts.size(); ++i) {
    for (const LayoutEntry& entry : world.layouts[i]->entries()) {
      if (is_per_rank(entry)) {
        rank_entries[i].push_back(&entry);
      } else {
        values.push_back({entry.fqn, entry.kind, entry.dtype, entry.shape});
      }
    }
  }
  const Roster& roster = world.roster;
  for (size_t i = 0; i < roster.layout_runs().size(); ++i) {
    const Run& run = roster.layout_runs()[i];
    for (const LayoutEntry* entry : rank_entries[run.value]) {
      for (uint32_t k = 0; k < run.count; ++k) {
        values.push_back(
            {value_fqn(*entry, roster.layout_starts()[i] + k), entry->kind, entry->dtype, entry->shape});
      }
    }
  }
  std::sort(values.begin(), values.end(),
            [](const TensorMetadata& a, const TensorMetadata& b) { return a.fqn < b.fqn; });
  auto same_fqn = [](const TensorMetadata& a, const TensorMetadata& b) { return a.fqn == b.fqn; };
  values.erase(std::unique(values.begin(), values.end(), same_fqn), values.end());
  return values;
}

}  // namespace shoal
