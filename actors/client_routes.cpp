#include "actors/client_routes.h"

#include <variant>

#include "base/visit.h"

namespace shoal::actors {

bool hears(RoleKind role, const local::LocalMessage& message) {
  using namespace local;
  return std::visit(
      base::Overloaded{
          [role](const base::OneOf<Attach, LayoutUpdate> auto&) {
            return role == RoleKind::planner || role == RoleKind::shard_writer;
          },
          [role](
              const base::OneOf<Staged, Written, NotStaged, PlanRequest, PlanGathering, Ping, Detach> auto&) {
            return role == RoleKind::shard_writer;
          },
          [role](const base::OneOf<Slab, Latest, List, Load, Placed, FilesRead, Close, StatusRequest> auto&) {
            return role == RoleKind::loader;
          },
          // The node itself answers these (StagingMemory, StagedParts).
          [](const base::OneOf<StagingRequest, StagingKept, PartStaged> auto&) { return false; },
          [](const OnlyFromNode auto&) { return false; }},
      message);
}

}  // namespace shoal::actors
