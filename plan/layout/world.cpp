// validate_world.
#include <fmt/format.h>

#include <algorithm>

#include "plan/layout/holdings.h"
#include "plan/layout/layout_ranks.h"
#include "shoal/roster.h"

namespace shoal {

namespace {

Status invalid_world(std::string what) {
  return Status(Code::invalid_argument, std::move(what));
}

Status validate_ranks(const Layout& layout, uint32_t world_size) {
  std::vector<Rank> highest;  // by mesh: the highest rank or device
  for (const Mesh& mesh : layout.meshes()) highest.push_back(plan::RankSet::of_mesh(mesh).highest());
  for (const LayoutEntry& entry : layout.entries()) {
    bool is_ok = true;
    if (const auto* mesh = std::get_if<MeshSharding>(&entry.sharding)) {
      is_ok = highest[mesh->mesh] < world_size;
    } else if (const auto* boxes = std::get_if<BoxSharding>(&entry.sharding)) {
      is_ok = boxes->ranks.empty() || boxes->ranks.back().rank < world_size;
    } else if (std::optional<uint32_t> index = mesh_of(entry)) {
      is_ok = highest[*index] / devices_per_rank(entry) < world_size;
    }
    if (!is_ok)
      return invalid_world(
          fmt::format("'{}' names a rank that is not in a world of {}", entry.fqn, world_size));
  }
  return ok_status();
}

// Two layouts with the same fqn must describe the same value.
Status validate_agreement(const LayoutEntry& a, const LayoutEntry& b) {
  auto differ = [&](const char* what) {
    return invalid_world(fmt::format("'{}' has different {} on different ranks", a.fqn, what));
  };
  if (a.kind != b.kind) return differ("kinds");
  if (a.dtype != b.dtype) return differ("dtypes");
  if (a.shape != b.shape) return differ("shapes");
  if (is_per_rank(a) != is_per_rank(b)) {
    return invalid_world(
        fmt::format("'{}' is one value on some ranks and a per-rank value on others", a.fqn));
  }
  if (std::holds_alternative<BoxSharding>(a.sharding) != std::holds_alternative<BoxSharding>(b.sharding)) {
    return invalid_world(fmt::format("'{}' has explicit boxes on some ranks and a mesh on others", a.fqn));
  }
  return ok_status();
}

// What two entries of one value state, and on which ranks.
std::string name_statements(const World& world, plan::Site one, plan::Site other) {
  auto describe = [&](plan::Site site) {
    const LayoutEntry& entry = world.layouts[site.layout]->entries()[site.entry];
    const bool is_object = entry.kind == LayoutEntry::Kind::object;
    return fmt::format("{} of shape [{}] on {}", is_object ? "object" : dtype_name(entry.dtype),
                       fmt::join(entry.shape, ", "), plan::name_ranks_of(world, site.layout));
  };
  return describe(one) + "; " + describe(other);
}

bool has_rank_objects(const World& world) {
  return std::any_of(world.layouts.begin(), world.layouts.end(), [](const LayoutPtr& layout) {
    return std::any_of(layout->entries().begin(), layout->entries().end(), is_per_rank);
  });
}

// Checks a per-rank value: no other value may have the name of one of its objects.
Status validate_rank_names(const World& world, const plan::FqnIndex& index, uint32_t value) {
  const std::string_view prefix = index.fqn(value);
  for (uint32_t other = value + 1; other < index.size() && index.fqn(other).starts_with(prefix); ++other) {
    std::optional<RankFqn> name = split_rank_fqn(index.fqn(other));
    if (!name || name->prefix != prefix || name->rank >= world.roster.world_size()) continue;
    if (!world.layout_of(name->rank).find(prefix)) continue;
    return invalid_world(fmt::format("'{}' is the name of a value and of rank {}'s per-rank value",
                                     index.fqn(other), name->rank));
  }
  return ok_status();
}

}  // namespace

const LayoutEntry* find_value(const World& world, std::string_view fqn) {
  for (const LayoutPtr& layout : world.layouts) {
    std::optional<uint32_t> entry = layout->find(fqn);
    if (entry && !is_per_rank(layout->entries()[*entry])) return &layout->entries()[*entry];
  }
  std::optional<RankFqn> name = split_rank_fqn(fqn);
  if (!name || name->rank >= world.roster.world_size()) return nullptr;
  const Layout& layout = world.layout_of(name->rank);
  std::optional<uint32_t> entry = layout.find(name->prefix);
  return entry && is_per_rank(layout.entries()[*entry]) ? &layout.entries()[*entry] : nullptr;
}

Status validate_world(const World& world) {
  const std::vector<LayoutId>& ids = world.roster.layout_ids();
  if (world.roster.world_size() == 0) return invalid_world("the world has no ranks");
  if (world.layouts.size() != ids.size()) {
    return invalid_world(
        fmt::format("{} layouts are given for a roster of {}", world.layouts.size(), ids.size()));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!world.layouts[i] || world.layouts[i]->id() != ids[i]) {
      return invalid_world(fmt::format("layout {} of the roster, {}, is missing", i, ids[i].to_hex()));
    }
    SHOAL_RETURN_IF_ERROR(validate_ranks(*world.layouts[i], world.roster.world_size()));
  }
  if (world.layouts.size() == 1 && !has_rank_objects(world)) return ok_status();
  const plan::FqnIndex index = plan::FqnIndex::of_world(world);
  for (uint32_t value = 0; value < index.size(); ++value) {
    std::span<const plan::Site> sites = index.sites(value);
    auto entry_of = [&](plan::Site site) -> const LayoutEntry& {
      return world.layouts[site.layout]->entries()[site.entry];
    };
    for (size_t i = 1; i < sites.size(); ++i) {
      if (Status agree = validate_agreement(entry_of(sites[0]), entry_of(sites[i])); !agree.ok()) {
        return invalid_world(agree.message() + ": " + name_statements(world, sites[0], sites[i]));
      }
    }
    if (is_per_rank(entry_of(sites[0]))) SHOAL_RETURN_IF_ERROR(validate_rank_names(world, index, value));
  }
  return ok_status();
}

}  // namespace shoal
