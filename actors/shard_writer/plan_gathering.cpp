// ShardWriter: the plan gather of planners that make a global plan, before a collective save. The ranks of
// this node offer their plans. The planner of coordinator_rank, if it is here, makes the plans of all ranks.
// Then each rank receives its plan. The node does not interpret these plans.
#include <utility>

#include "actors/messages/message_bounds.h"
#include "actors/shard_writer/shard_writer.h"

namespace shoal::actors {

void ShardWriter::on_plan_gathering(TimeNs now, ClientId client, const local::PlanGathering& message,
                                    EffectWriter& out) {
  const AttemptKey key{config_.generation, message.step, message.attempt};
  RankSave* rank_save = planning_rank(now, client, key, out);
  if (rank_save == nullptr) return;
  NodeSave& save = saves_.at(key);
  const Rank rank = clients_.at(client);
  auto refuse = [&](const std::string& why) {
    fail(now, key, rank, Status(Code::invalid_argument, why), out);
  };
  const bool is_made = message.stage == plan::GatherStage::made;
  if (!is_made && message.stage != plan::GatherStage::offered) {
    return refuse("sent a stage of the plan gather that only a node sends");
  }
  if (is_made && (rank != message.coordinator_rank || message.plans.size() != world_size())) {
    return refuse("sent the plans of " + std::to_string(message.plans.size()) +
                  " ranks as a global plan, which only the coordinator rank may send, for all ranks");
  }
  if (Status alike = save.check_planners(rank, true); !alike.ok()) return refuse(alike.message());
  LocalGather& gather = save.begin_gather(message.coordinator_rank, message.options);
  if (gather.coordinator_rank != message.coordinator_rank || gather.options != message.options) {
    return refuse("saves with another coordinator_rank or other options than the other ranks of its host");
  }
  rank_save->on(RankSaveTrigger::offered_plan);
  rank_save->follows_planner = true;
  rank_save->offer = is_made ? message.plans[rank] : message.plans[0];
  rank_save->is_offer_sent = false;
  if (rank == gather.coordinator_rank) {
    save.on(is_made ? LocalGatherTrigger::made : LocalGatherTrigger::offered_again);
    gather.gathered.clear();
    gather.is_made_sent = false;
    gather.made = is_made ? message.plans : std::vector<plan::PlannerPlan>();
  }
  if (is_made) save.reported = {0, 0}, save.partial_due = true;  // all ranks have sent their offers
  report_soon(now, key, save, out);
}

void ShardWriter::send_gather(TimeNs now, const AttemptKey& key, NodeSave& save, EffectWriter& out) {
  if (!save.gather) return;
  LocalGather& gather = *save.gather;
  const wire::PlanGathering empty{
      key, plan::GatherStage::offered, config_.host, world_size(), gather.options, gather.coordinator_rank,
      {}};
  const bool is_repeated = std::exchange(gather.resends, false);
  wire::PlanGathering offered = empty;
  for (auto& [rank, rank_save] : save.ranks) {
    const bool plans = rank == gather.coordinator_rank && !gather.state.is(LocalGatherState::gathering);
    if (!rank_save.offer || plans || (rank_save.is_offer_sent && !is_repeated)) continue;
    rank_save.is_offer_sent = true;
    offered.plans.push_back({rank, rank_save.offer});
  }
  if (!offered.plans.empty()) send_plans(now, std::move(offered), out);
  // Repeats until its own rank has staged: by then every rank has received its plan.
  if (!gather.state.is(LocalGatherState::made) || (gather.is_made_sent && !is_repeated) ||
      save.has_staged(gather.coordinator_rank)) {
    return;
  }
  gather.is_made_sent = true;
  wire::PlanGathering made = empty;
  made.stage = plan::GatherStage::made;
  for (Rank rank = 0; rank < gather.made.size(); ++rank) made.plans.push_back({rank, gather.made[rank]});
  send_plans(now, std::move(made), out);
}

void ShardWriter::send_plans(TimeNs now, wire::PlanGathering plans, EffectWriter& out) {
  const AttemptKey key = plans.key;
  const Rank rank = plans.plans.front().rank;
  Status refused;
  for (wire::PlanGathering& part : split_plans(std::move(plans), config_.message_bytes_max, &refused)) {
    out.send(kCoordinatorNode, RoleKind::coordinator, std::move(part));
  }
  if (!refused.ok()) fail(now, key, rank, refused, out);
}

void ShardWriter::on_plans(const wire::PlanGathering& message, EffectWriter& out) {
  auto found = saves_.find(message.key);
  if (found == saves_.end() || found->second.has_failed() || !found->second.gather) return;
  NodeSave& save = found->second;
  LocalGather& gather = *save.gather;
  local::PlanGathering to_client{message.key.step,        message.key.attempt, message.stage,
                                 gather.coordinator_rank, gather.options,      {}};
  if (message.stage == plan::GatherStage::gathered) {
    auto planner = save.ranks.find(gather.coordinator_rank);
    if (planner == save.ranks.end() || !planner->second.is(RankSaveState::gathering)) return;
    if (!gather.state.is(LocalGatherState::gathering)) return;
    for (const wire::PlanOfRank& plan : message.plans) gather.gathered[plan.rank] = plan.bytes;
    if (gather.gathered.size() < message.world_size) return;
    for (auto& [rank, plan] : gather.gathered) to_client.plans.push_back(std::move(plan));
    gather.gathered.clear();
    save.on(LocalGatherTrigger::all_gathered);
    if (clients_.contains(planner->second.listener)) {
      out.to_client(planner->second.listener, std::move(to_client));
    }
  } else if (message.stage == plan::GatherStage::delivered) {
    for (const wire::PlanOfRank& plan : message.plans) {
      auto rank_save = save.ranks.find(plan.rank);
      if (rank_save == save.ranks.end() || !rank_save->second.is(RankSaveState::gathering)) continue;
      rank_save->second.on(RankSaveTrigger::gathered);
      rank_save->second.offer.reset();
      save.reported = {0, 0};
      to_client.plans = {plan.bytes};
      if (clients_.contains(rank_save->second.listener)) out.to_client(rank_save->second.listener, to_client);
    }
  }
}

}  // namespace shoal::actors
