// The plan gather of planners with a custom global plan. The bytes have a meaning only to the planners. Each
// rank offers its plan, the planner of coordinator_rank receives all plans, and each rank receives its part
// of the result. docs/reference/protocol.md, "Planners with a global plan".
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace shoal::plan {

enum class GatherStage : uint8_t {
  offered = 0,    // from a rank: its local plan
  gathered = 1,   // to the planner of coordinator_rank: the plans of all ranks
  made = 2,       // from that planner: the plan of each rank
  delivered = 3,  // to a rank: its part of the result
};
inline constexpr uint8_t kGatherStages = 4;

using PlannerPlan = std::shared_ptr<const std::string>;  // never null in a message

// Bound on the plans of all ranks together, to the planner or from it.
inline constexpr size_t kMaxPlanGatherBytes = size_t{192} << 20;

}  // namespace shoal::plan
