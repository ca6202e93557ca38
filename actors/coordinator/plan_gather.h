// PlanGather: the plan gather of one attempt, for planners that make a global plan (mode collective). The
// coordinator gathers the offers of all ranks and sends them to the planner of coordinator_rank. That planner
// makes a plan for each rank, and each node receives the plans of its ranks.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "actors/ids.h"
#include "actors/messages/messages.h"
#include "base/state_machine.h"

namespace shoal::actors {

enum class PlanGatherState : uint8_t {
  gathering,  // Ranks send what their planners offer.
  planning,   // All offers are with the planner of coordinator_rank.
  made,       // That planner has made a plan for each rank. Each node receives those of its ranks.
};
enum class PlanGatherTrigger : uint8_t {
  all_offered,  // every rank has sent its offer
  plans_made,   // the planner has sent the plans of all ranks; a later coordinator may lack the offers
};

inline constexpr auto kPlanGatherTransitions = [] {
  using S = PlanGatherState;
  using T = PlanGatherTrigger;
  return std::to_array<base::Transition<S, T>>({
      {S::gathering, T::all_offered, S::planning},
      {S::gathering, T::plans_made, S::made},
      {S::planning, T::plans_made, S::made},
  });
}();
using PlanGatherMachine = base::StateMachine<kPlanGatherTransitions>;

class PlanGather {
 public:
  PlanGather(Rank coordinator_rank, PlanGatherMachine::Counts& counts)
      : coordinator_rank_(coordinator_rank), counts_(counts) {}

  bool is_made() const { return state_.is(PlanGatherState::made); }
  Rank coordinator_rank() const { return coordinator_rank_; }
  uint64_t bytes() const { return bytes_; }            // of offers and plans
  size_t plans_taken() const { return plans_taken_; }  // number of them; a repetition does not count

  // What a node must be sent after its message, if anything.
  struct Answer {
    plan::GatherStage stage = plan::GatherStage::gathered;
    std::set<NodeId> to;
  };
  // Code::too_large: the offers or plans exceed plan::kMaxPlanGatherBytes.
  Result<Answer> take_offers(NodeId from, const wire::PlanGathering& message);
  Result<Answer> take_made(NodeId from, const wire::PlanGathering& message);
  // What a node receives: all offers, or the plans of its ranks.
  std::vector<wire::PlanOfRank> plans_for(NodeId to, plan::GatherStage stage) const;

  // For the cause of an abort. Of the ranks that wait for their plans, none lacks anything.
  template <class Waiting>
  std::string what_is_missing(uint32_t world_size, const Waiting& waiting) const {
    std::vector<Rank> missing;
    for (Rank rank = 0; rank < world_size; ++rank) {
      if (!offers_.contains(rank) && !waiting.contains(rank)) missing.push_back(rank);
    }
    return name_missing(missing);
  }

 private:
  std::string name_missing(const std::vector<Rank>& missing) const;

  const Rank coordinator_rank_;
  PlanGatherMachine state_{PlanGatherState::gathering};
  PlanGatherMachine::Counts& counts_;
  std::map<Rank, plan::PlannerPlan> offers_;
  std::map<Rank, NodeId> nodes_;            // that sent the offers
  std::map<Rank, plan::PlannerPlan> made_;  // by the planner of coordinator_rank
  size_t bytes_ = 0;
  size_t plans_taken_ = 0;
};

}  // namespace shoal::actors
