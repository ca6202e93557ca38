// validate_world.
#include <fmt/format.h>

#include "plan/holdings.h"
#include "plan/roster.h"

namespace shoal {

namespace {

Status bad(std::string what) {
  return Status(Code::invalid_argument, std::move(what));
}

Status validate_ranks(const Layout& layout, uint32_t world_size) {
  std::vector<bool> is_within(layout.meshes().size());
  for (size_t i = 0; i < is_within.size(); ++i) {
    is_within[i] = RankSet::of_mesh(layout.meshes()[i]).highest() < world_size;
  }
  for (const LayoutEntry& entry : layout.entries()) {
    bool is_ok = true;
    if (const auto* mesh = std::get_if<MeshSharding>(&entry.sharding)) is_ok = is_within[mesh->mesh];
    if (const auto* group = std::get_if<GroupSharding>(&entry.sharding)) is_ok = is_within[group->mesh];
    if (const auto* boxes = std::get_if<BoxSharding>(&entry.sharding)) {
      is_ok = boxes->ranks.empty() || boxes->ranks.back().rank < world_size;
    }
    if (!is_ok) return bad(fmt::format("'{}' names a rank beyond a world of {}", entry.fqn, world_size));
  }
  return ok_status();
}

// Two layouts that know the same fqn must mean the same value.
Status validate_agreement(const LayoutEntry& a, const LayoutEntry& b) {
  auto differ = [&](const char* what) {
    return bad(fmt::format("'{}' has two {} among the ranks", a.fqn, what));
  };
  if (a.kind != b.kind) return differ("kinds");
  if (a.dtype != b.dtype) return differ("dtypes");
  if (a.shape != b.shape) return differ("shapes");
  if (std::holds_alternative<BoxSharding>(a.sharding) != std::holds_alternative<BoxSharding>(b.sharding)) {
    return bad(fmt::format("'{}' has explicit boxes on some ranks and a mesh on others", a.fqn));
  }
  return ok_status();
}

}  // namespace

Status validate_world(const World& world) {
  const std::vector<LayoutId>& ids = world.roster.layout_ids();
  if (world.roster.world_size() == 0) return bad("a world without ranks");
  if (world.layouts.size() != ids.size()) {
    return bad(fmt::format("{} layouts for a roster of {}", world.layouts.size(), ids.size()));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!world.layouts[i] || world.layouts[i]->id() != ids[i]) {
      return bad(fmt::format("layout {} of the roster, {}, is missing", i, ids[i].to_hex()));
    }
    SHOAL_RETURN_IF_ERROR(validate_ranks(*world.layouts[i], world.roster.world_size()));
  }
  if (world.layouts.size() == 1) return ok_status();
  const FqnIndex index = FqnIndex::of_world(world);
  for (uint32_t value = 0; value < index.size(); ++value) {
    std::span<const Site> sites = index.sites(value);
    auto entry_of = [&](Site site) -> const LayoutEntry& {
      return world.layouts[site.layout]->entries()[site.entry];
    };
    for (size_t i = 1; i < sites.size(); ++i) {
      SHOAL_RETURN_IF_ERROR(validate_agreement(entry_of(sites[0]), entry_of(sites[i])));
    }
  }
  return ok_status();
}

}  // namespace shoal
