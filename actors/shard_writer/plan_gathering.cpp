// ShardWriter: the plan gather of planners that make a global plan, before a collective save. The ranks of
// this node offer their plans. The planner of coordinator_rank, if it is here, makes the plans of all ranks.
// Then each rank receives its plan. The node does not interpret these plans.
#include <utility>

#include "actors/messages/message_bounds.h"
#include "actors/shard_writer/shard_writer.h"

namespace shoal::actors {

void ShardWriter::on_plan_exchange(TimeNs now, ClientId client, const local::PlanGathering& received,
                                   EffectWriter& out) {
  const AttemptKey key{config_.generation, received.step, received.attempt};
  Share* share = asking_rank(now, client, key, out);
  if (share == nullptr) return;
  Save& save = saves_.at(key);
  const Rank rank = clients_.at(client);
  auto refuse = [&](const std::string& why) {
    fail(now, key, rank, Status(Code::invalid_argument, why), out);
  };
  const bool is_made = received.stage == plan::GatherStage::made;
  if (!is_made && received.stage != plan::GatherStage::offered) return refuse("says what only a node says");
  if (is_made && (rank != received.coordinator_rank || received.plans.size() != world_size())) {
    return refuse("makes the plans of " + std::to_string(received.plans.size()) + " ranks");
  }
  if (Status alike = check_alike(save, rank, true); !alike.ok()) return refuse(alike.message());
  if (!save.exchange)
    save.exchange = Exchange{received.coordinator_rank, received.options, {}, false, {}, false, false};
  Exchange& exchange = *save.exchange;
  if (exchange.coordinator_rank != received.coordinator_rank || exchange.options != received.options) {
    return refuse("saves with another coordinator_rank or other options than the ranks beside it");
  }
  share->follows_planner = true;
  share->waits.reset();
  share->offer = is_made ? received.plans[rank] : received.plans[0];
  share->is_offer_sent = false;
  if (rank == exchange.coordinator_rank) {
    exchange.gathered.clear();
    exchange.is_planning = exchange.is_made_sent = false;
    exchange.made = is_made ? received.plans : std::vector<plan::PlannerPlan>();
  }
  if (is_made) save.reported = {0, 0}, save.partial_due = true;  // all ranks have sent their offers
  report_soon(now, key, save, out);
}

void ShardWriter::send_exchange(TimeNs now, const AttemptKey& key, Save& save, EffectWriter& out) {
  if (!save.exchange) return;
  Exchange& exchange = *save.exchange;
  const wire::PlanGathering empty{key,
                                  plan::GatherStage::offered,
                                  config_.host,
                                  world_size(),
                                  exchange.options,
                                  exchange.coordinator_rank,
                                  {}};
  const bool is_repeated = std::exchange(exchange.resends, false);
  wire::PlanGathering offered = empty;
  for (auto& [rank, share] : save.shares) {
    const bool plans = rank == exchange.coordinator_rank && (exchange.is_planning || !exchange.made.empty());
    if (!share.offer || plans || (share.is_offer_sent && !is_repeated)) continue;
    share.is_offer_sent = true;
    offered.plans.push_back({rank, share.offer});
  }
  if (!offered.plans.empty()) send_plans(now, std::move(offered), out);
  // Repeats until its own rank has staged: by then every rank has received its plan.
  if (exchange.made.empty() || (exchange.is_made_sent && !is_repeated) ||
      has_staged(save, exchange.coordinator_rank))
    return;
  exchange.is_made_sent = true;
  wire::PlanGathering made = empty;
  made.stage = plan::GatherStage::made;
  for (Rank rank = 0; rank < exchange.made.size(); ++rank) made.plans.push_back({rank, exchange.made[rank]});
  send_plans(now, std::move(made), out);
}

void ShardWriter::send_plans(TimeNs now, wire::PlanGathering received, EffectWriter& out) {
  const AttemptKey key = received.key;
  const Rank rank = received.plans.front().rank;
  Status refused;
  for (wire::PlanGathering& part : split_plans(std::move(received), config_.message_bytes_max, &refused)) {
    out.send(kCoordinatorNode, RoleKind::coordinator, std::move(part));
  }
  if (!refused.ok()) fail(now, key, rank, refused, out);
}

void ShardWriter::on_plans(const wire::PlanGathering& received, EffectWriter& out) {
  auto found = saves_.find(received.key);
  if (found == saves_.end() || !found->second.failure.ok() || !found->second.exchange) return;
  Save& save = found->second;
  Exchange& exchange = *save.exchange;
  local::PlanGathering to_client{received.key.step,         received.key.attempt, received.stage,
                                 exchange.coordinator_rank, exchange.options,     {}};
  if (received.stage == plan::GatherStage::gathered) {
    auto share = save.shares.find(exchange.coordinator_rank);
    if (share == save.shares.end() || !share->second.offer) return;
    if (exchange.is_planning || !exchange.made.empty()) return;
    for (const wire::PlanOfRank& plan : received.plans) exchange.gathered[plan.rank] = plan.bytes;
    if (exchange.gathered.size() < received.world_size) return;
    for (auto& [rank, plan] : exchange.gathered) to_client.plans.push_back(std::move(plan));
    exchange.gathered.clear();
    exchange.is_planning = true;
    if (clients_.contains(share->second.listener))
      out.to_client(share->second.listener, std::move(to_client));
  } else if (received.stage == plan::GatherStage::delivered) {
    for (const wire::PlanOfRank& plan : received.plans) {
      auto share = save.shares.find(plan.rank);
      if (share == save.shares.end() || !share->second.asked || !share->second.offer) continue;
      share->second.offer.reset();
      save.reported = {0, 0};
      to_client.plans = {plan.bytes};
      if (clients_.contains(share->second.listener)) out.to_client(share->second.listener, to_client);
    }
  }
}

}  // namespace shoal::actors
