#include <algorithm>

#include "plan/holdings.h"

namespace shoal {

namespace {

// Calls found(position in names, entry) for every entry whose name is among `names`, and missing(entry) for
// every other. Both are ascending; layouts of one job share nearly all of their names, so that this is one
// walk.
template <class Found, class Missing>
void match(const std::vector<std::string_view>& names, const std::vector<LayoutEntry>& entries, Found&& found,
           Missing&& missing) {
  uint32_t name = 0;
  for (uint32_t i = 0; i < entries.size(); ++i) {
    int order = 1;
    while (name < names.size() && (order = names[name].compare(entries[i].fqn)) < 0) ++name;
    if (name < names.size() && order == 0) {
      found(name++, i);
    } else {
      missing(i);
    }
  }
}

}  // namespace

FqnIndex FqnIndex::of_world(const World& world) {
  std::vector<std::string_view> names;
  for (const LayoutPtr& layout : world.layouts) {
    std::vector<std::string_view> added;
    match(
        names, layout->entries(), [](uint32_t, uint32_t) {},
        [&](uint32_t entry) { added.push_back(layout->entries()[entry].fqn); });
    if (added.empty()) continue;
    const auto middle = static_cast<std::ptrdiff_t>(names.size());
    names.insert(names.end(), added.begin(), added.end());
    std::inplace_merge(names.begin(), names.begin() + middle, names.end());
  }
  return with_sites(world, std::move(names));
}

FqnIndex FqnIndex::of_layout(const World& world, uint32_t layout) {
  std::vector<std::string_view> names;
  for (const LayoutEntry& entry : world.layouts[layout]->entries()) names.emplace_back(entry.fqn);
  return with_sites(world, std::move(names));
}

FqnIndex FqnIndex::with_sites(const World& world, std::vector<std::string_view> names) {
  struct Found {
    uint32_t value;
    Site site;
  };
  std::vector<Found> found;  // by layout, then by value
  for (uint32_t layout = 0; layout < world.layouts.size(); ++layout) {
    match(
        names, world.layouts[layout]->entries(),
        [&](uint32_t name, uint32_t entry) {
          found.push_back({name, {layout, entry}});
        },
        [](uint32_t) {});
  }
  FqnIndex index;
  index.starts_.assign(names.size() + 1, 0);
  for (const Found& each : found) ++index.starts_[each.value + 1];
  for (size_t value = 1; value < index.starts_.size(); ++value)
    index.starts_[value] += index.starts_[value - 1];
  index.sites_.resize(found.size());
  std::vector<uint32_t> next(index.starts_.begin(), index.starts_.end() - 1);
  for (const Found& each : found) index.sites_[next[each.value]++] = each.site;
  index.fqns_ = std::move(names);
  return index;
}

std::optional<uint32_t> FqnIndex::find(std::string_view fqn) const {
  auto found = std::lower_bound(fqns_.begin(), fqns_.end(), fqn);
  if (found == fqns_.end() || *found != fqn) return std::nullopt;
  return static_cast<uint32_t>(found - fqns_.begin());
}

}  // namespace shoal
