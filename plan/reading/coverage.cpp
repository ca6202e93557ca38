// check_coverage. On a mesh the shards of all coordinates tile a tensor by construction, and divide() tiles
// the boxes of each replica group. So a value is covered if its chosen instance has a holder for every shard.
#include <fmt/format.h>

#include <span>
#include <string>
#include <variant>

#include "plan/layout/holdings.h"
#include "plan/layout/layout_ranks.h"
#include "plan/layout/sharding_text.h"
#include "shoal/save_plan.h"

namespace shoal {

namespace {

Status check_boxes(plan::Holdings& holdings, uint32_t value) {
  const LayoutEntry& entry = *holdings.value(value).entry;
  std::vector<Box> boxes;
  for (const plan::BoxHoldings::HeldBox& held : holdings.boxes(value).boxes) boxes.push_back(*held.box);
  return check_tiling(boxes, entry.shape);
}

Status check_mesh(plan::Holdings& holdings, const plan::Instance& instance) {
  std::optional<Dims> missing = holdings.missing_coordinate(instance);
  if (!missing) return ok_status();
  const std::span<const Placement> placements = plan::placements_of(instance);
  Box box = placements.empty()
                ? whole(instance.entry->shape)
                : shards_at(instance.entry->shape, *instance.mesh, placements, *missing).boxes.at(0);
  return Status(Code::invalid_argument,
                fmt::format("no rank holds {}, which rank {} of the mesh ({}) must hold", to_string(box),
                            instance.rank_at(*missing), plan::describe_mesh_of(instance)));
}

bool is_same_sharding(const World& world, plan::Site a, plan::Site b) {
  const Layout &of_a = *world.layouts[a.layout], &of_b = *world.layouts[b.layout];
  const auto* mesh_a = std::get_if<MeshSharding>(&of_a.entries()[a.entry].sharding);
  const auto* mesh_b = std::get_if<MeshSharding>(&of_b.entries()[b.entry].sharding);
  if (mesh_a == nullptr || mesh_b == nullptr) return true;  // not compared
  return mesh_a->placements == mesh_b->placements &&
         of_a.meshes()[mesh_a->mesh] == of_b.meshes()[mesh_b->mesh];
}

std::string describe(const World& world, plan::Site site) {
  const Layout& layout = *world.layouts[site.layout];
  return plan::describe_sharding(layout, layout.entries()[site.entry]);
}

// Ranks that state the value with different meshes or placements; "" if all agree.
std::string name_disagreement(const World& world, std::span<const plan::Site> sites) {
  for (const plan::Site& site : sites) {
    if (is_same_sharding(world, sites[0], site)) continue;
    return fmt::format("; ranks state different meshes or placements of it: {} {}, and {} {}",
                       plan::name_ranks_of(world, sites[0].layout), describe(world, sites[0]),
                       plan::name_ranks_of(world, site.layout), describe(world, site));
  }
  return "";
}

Status check_value(plan::Holdings& holdings, uint32_t value) {
  const plan::ValueHoldings& held = holdings.value(value);
  if (held.per_rank) return ok_status();  // each rank with the layout writes its own
  if (held.whole_writer) {
    if (holdings.whole_writer(value, true)) return ok_status();
    return Status(Code::invalid_argument, "no rank holds this value");
  }
  return held.instance().mesh ? check_mesh(holdings, held.instance()) : check_boxes(holdings, value);
}

}  // namespace

Status check_coverage(const World& world, const SaveOptions& options) {
  SHOAL_RETURN_IF_ERROR(validate_options(options));
  plan::Holdings holdings(world, plan::FqnIndex::of_world(world));
  for (uint32_t value = 0; value < holdings.index().size(); ++value) {
    if (Status status = check_value(holdings, value); !status.ok()) {
      const std::string disagreement = name_disagreement(world, holdings.index().sites(value));
      return Status(status.code(),
                    fmt::format("'{}': {}{}", holdings.index().fqn(value), status.message(), disagreement));
    }
  }
  return ok_status();
}

}  // namespace shoal
