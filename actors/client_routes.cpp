#include "actors/client_routes.h"

namespace shoal::actors {

bool hears(RoleKind role, const local::LocalMessage& message) {
  const bool is_of_a_rank =
      std::holds_alternative<local::Attach>(message) || std::holds_alternative<local::LayoutUpdate>(message);
  const bool is_of_a_save =
      std::holds_alternative<local::Staged>(message) || std::holds_alternative<local::Written>(message) ||
      std::holds_alternative<local::NotStaged>(message) ||
      std::holds_alternative<local::PlanRequest>(message) ||
      std::holds_alternative<local::PlanGathering>(message) || std::holds_alternative<local::Ping>(message);
  // The node itself answers these (StagingMemory, StagedParts).
  const bool is_of_memory = std::holds_alternative<local::StagingRequest>(message) ||
                            std::holds_alternative<local::StagingKept>(message) ||
                            std::holds_alternative<local::PartStaged>(message);
  if (is_of_memory) return false;
  if (std::holds_alternative<local::Detach>(message)) return role == RoleKind::shard_writer;
  switch (role) {
    case RoleKind::planner:
      return is_of_a_rank;
    case RoleKind::shard_writer:
      return is_of_a_rank || is_of_a_save;
    case RoleKind::loader:
      return !is_of_a_rank && !is_of_a_save;
    case RoleKind::coordinator:
      return false;
  }
  return false;
}

}  // namespace shoal::actors
