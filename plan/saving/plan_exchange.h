// What planners with a global plan of their own pass to each other, as bytes whose meaning is theirs: each
// rank offers its plan, that of coordinator_rank gets all, and each rank is told its part.
// docs/reference/protocol.md, "Planners with a global plan".
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace shoal::plan {

enum class ExchangeStage : uint8_t {
  offered = 0,   // by a rank: its local plan
  gathered = 1,  // to the planner of coordinator_rank: the plans of all ranks
  made = 2,      // by it: what each rank is to have
  told = 3,      // to a rank: its part of that
};
inline constexpr uint8_t kExchangeStages = 4;

using PlannerPlan = std::shared_ptr<const std::string>;  // never null in a message

// Of the plans of all ranks together, on their way to the planner or from it.
inline constexpr size_t kMaxExchangeBytes = size_t{192} << 20;

}  // namespace shoal::plan
