#include "actors/client_routes.h"

#include <variant>

#include "base/visit.h"

namespace shoal::actors {

bool hears(RoleKind role, const local::LocalMessage& message) {
  return std::visit(
      base::Overloaded{
          [role](const base::OneOf<local::Attach, local::LayoutUpdate> auto&) {
            return role == RoleKind::planner || role == RoleKind::shard_writer;
          },
          [role](const base::OneOf<local::Staged, local::Written, local::NotStaged, local::PlanRequest,
                                   local::PlanGathering, local::Ping, local::Detach> auto&) {
            return role == RoleKind::shard_writer;
          },
          [role](const base::OneOf<local::Slab, local::Latest, local::List, local::Load, local::Placed,
                                   local::FilesRead, local::Close, local::StatusRequest,
                                   local::JobStatusRequest> auto&) { return role == RoleKind::loader; },
          // The node itself takes these (StagingMemory, StagedParts, Activity).
          [](const base::OneOf<local::StagingRequest, local::StagingKept, local::PartStaged,
                               local::SaveReturned> auto&) { return false; },
          [](const local::OnlyFromNode auto&) { return false; }},
      message);
}

}  // namespace shoal::actors
