#include <algorithm>
#include <iterator>

#include "plan/layout/holdings.h"

namespace shoal::plan {

namespace {

using Names = std::vector<std::string_view>;  // ascending, distinct

// names[at] is less than `fqn`. Finds the first later name that is not, in steps that double, because the
// layouts of one job share nearly all names or nearly none.
uint32_t skip_less(const Names& names, uint32_t at, std::string_view fqn) {
  size_t step = 1, before = at;
  for (; before + step < names.size() && names[before + step] < fqn; step *= 2) before += step;
  const size_t end = std::min(before + step, names.size());
  const auto first = names.begin();
  return static_cast<uint32_t>(std::lower_bound(first + static_cast<std::ptrdiff_t>(before + 1),
                                                first + static_cast<std::ptrdiff_t>(end), fqn) -
                               first);
}

// Calls found(position in names, entry) for every entry whose name is among `names`. Both are ascending.
template <class Found>
void match(const Names& names, const std::vector<LayoutEntry>& entries, Found&& found) {
  uint32_t name = 0;
  auto order_of = [&](const LayoutEntry& entry) {
    return name < names.size() ? names[name].compare(entry.fqn) : 1;
  };
  for (uint32_t i = 0; i < entries.size(); ++i) {
    int order = order_of(entries[i]);
    if (order < 0) {
      name = skip_less(names, name, entries[i].fqn);
      order = order_of(entries[i]);
    }
    if (order == 0) found(name++, i);
  }
}

Names names_of(const Layout& layout) {
  Names names;
  names.reserve(layout.entries().size());
  for (const LayoutEntry& entry : layout.entries()) names.emplace_back(entry.fqn);
  return names;
}

// Collects the names of the layouts [begin, end). Merges halves, so that many layouts with different names do
// not each walk over all names.
Names names_of(const std::vector<LayoutPtr>& layouts, size_t begin, size_t end) {
  if (begin == end) return {};
  if (end - begin == 1) return names_of(*layouts[begin]);
  const size_t middle = begin + (end - begin) / 2;
  Names a = names_of(layouts, begin, middle);
  const Names b = names_of(layouts, middle, end);
  if (a == b) return a;
  Names both;
  both.reserve(std::max(a.size(), b.size()));
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

}  // namespace

FqnIndex FqnIndex::of_world(const World& world) {
  return with_sites(world, names_of(world.layouts, 0, world.layouts.size()));
}

FqnIndex FqnIndex::of_layout(const World& world, uint32_t layout) {
  return with_sites(world, names_of(*world.layouts[layout]));
}

FqnIndex FqnIndex::with_sites(const World& world, std::vector<std::string_view> names) {
  struct Found {
    uint32_t value;
    Site site;
  };
  std::vector<Found> found;  // by layout, then by value
  for (uint32_t layout = 0; layout < world.layouts.size(); ++layout) {
    match(names, world.layouts[layout]->entries(), [&](uint32_t name, uint32_t entry) {
      found.push_back({name, {layout, entry}});
    });
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

}  // namespace shoal::plan
