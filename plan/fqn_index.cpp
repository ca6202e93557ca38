#include <algorithm>

#include "plan/holdings.h"

namespace shoal {

FqnIndex FqnIndex::of_world(const World& world) {
  if (world.layouts.size() == 1) return of_layout(world, 0);
  std::vector<Site> sites;
  for (uint32_t layout = 0; layout < world.layouts.size(); ++layout) {
    for (uint32_t entry = 0; entry < world.layouts[layout]->entries().size(); ++entry)
      sites.push_back({layout, entry});
  }
  auto name_of = [&](const Site& site) -> std::string_view {
    return world.layouts[site.layout]->entries()[site.entry].fqn;
  };
  std::sort(sites.begin(), sites.end(), [&](const Site& a, const Site& b) {
    int order = name_of(a).compare(name_of(b));
    return order != 0 ? order < 0 : a.layout < b.layout;
  });
  FqnIndex index;
  for (uint32_t i = 0; i < sites.size(); ++i) {
    if (i > 0 && name_of(sites[i]) == index.fqns_.back()) continue;
    index.fqns_.push_back(name_of(sites[i]));
    index.starts_.push_back(i);
  }
  index.starts_.push_back(static_cast<uint32_t>(sites.size()));
  index.sites_ = std::move(sites);
  return index;
}

FqnIndex FqnIndex::of_layout(const World& world, uint32_t layout) {
  const std::vector<LayoutEntry>& own = world.layouts[layout]->entries();
  FqnIndex index;
  index.fqns_.reserve(own.size());
  for (const LayoutEntry& entry : own) index.fqns_.push_back(entry.fqn);
  struct Found {
    uint32_t value;
    Site site;
  };
  std::vector<Found> found;
  found.reserve(own.size());
  for (uint32_t other = 0; other < world.layouts.size(); ++other) {
    const std::vector<LayoutEntry>& entries = world.layouts[other]->entries();
    for (uint32_t i = 0, k = 0; i < own.size() && k < entries.size();) {
      int order = other == layout ? 0 : index.fqns_[i].compare(entries[k].fqn);
      if (order == 0) found.push_back({i, {other, k}});
      if (order <= 0) ++i;
      if (order >= 0) ++k;
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& a, const Found& b) { return a.value < b.value; });
  index.starts_.assign(1, 0);
  for (const Found& each : found) {
    index.sites_.push_back(each.site);
    index.starts_.resize(each.value + 2, static_cast<uint32_t>(index.sites_.size()) - 1);
    index.starts_[each.value + 1] = static_cast<uint32_t>(index.sites_.size());
  }
  return index;
}

std::optional<uint32_t> FqnIndex::find(std::string_view fqn) const {
  auto found = std::lower_bound(fqns_.begin(), fqns_.end(), fqn);
  if (found == fqns_.end() || *found != fqn) return std::nullopt;
  return static_cast<uint32_t>(found - fqns_.begin());
}

}  // namespace shoal
