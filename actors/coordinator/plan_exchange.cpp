// Coordinator: the plan gather of planners that make a global plan, before a collective save. It gathers
// their offers, sends all to the planner of coordinator_rank, and sends each rank the plan that this planner
// made for it.
#include <set>

#include "actors/coordinator/coordinator.h"
#include "actors/messages/message_bounds.h"
#include "base/rank_names.h"

namespace shoal::actors {

void Coordinator::on_plan_exchange(TimeNs now, NodeId from, const wire::PlanExchange& said,
                                   EffectWriter& out) {
  Speaker speaker{from, said.host, said.world_size, said.options, true, {}};
  for (const wire::PlanOfRank& plan : said.plans) speaker.ranks.push_back(plan.rank);
  if (said.stage == plan::ExchangeStage::made)
    speaker.ranks = {said.coordinator_rank};  // the plans in the message are those of all ranks
  Attempt* attempt = hear(now, speaker, said.key, out);
  if (attempt == nullptr) return;
  if (!attempt->exchange) attempt->exchange = Exchange{said.coordinator_rank, {}, {}, {}, 0};
  if (attempt->exchange->coordinator_rank != said.coordinator_rank) {
    return abort(said.key, GiveUp::contradiction,
                 "host " + said.host + " says that coordinator_rank is " +
                     std::to_string(said.coordinator_rank) + ", another host that it is " +
                     std::to_string(attempt->exchange->coordinator_rank),
                 out);
  }
  if (said.stage == plan::ExchangeStage::offered) {
    take_offers(from, said, *attempt, out);
  } else if (said.stage == plan::ExchangeStage::made) {
    take_made(from, said, *attempt, out);
  }
  look_for_gone(now, said.key, out);
}

void Coordinator::take_offers(NodeId from, const wire::PlanExchange& said, Attempt& attempt,
                              EffectWriter& out) {
  Exchange& exchange = *attempt.exchange;
  const bool is_made = exchange.made.size() == said.world_size;
  const size_t before = exchange.offers.size();
  bool asks_for_all = false;
  for (const wire::PlanOfRank& plan : said.plans) {
    exchange.nodes[plan.rank] = from;
    asks_for_all = asks_for_all || plan.rank == exchange.coordinator_rank;
    if (!is_made && exchange.offers.emplace(plan.rank, plan.bytes).second)
      exchange.bytes += plan.bytes->size();
  }
  if (is_made) return send_plans(said.key, exchange, plan::ExchangeStage::told, from, out);
  if (exchange.bytes > plan::kMaxExchangeBytes) {
    return abort(said.key, GiveUp::contradiction,
                 "the plans of " + std::to_string(exchange.offers.size()) + " of " +
                     std::to_string(said.world_size) + " ranks take " + human_bytes(exchange.bytes) +
                     ", those of all may take " + human_bytes(plan::kMaxExchangeBytes),
                 out);
  }
  const bool is_complete = exchange.offers.size() == said.world_size;
  if (!is_complete || (before == said.world_size && !asks_for_all)) return;
  send_plans(said.key, exchange, plan::ExchangeStage::gathered, exchange.nodes.at(exchange.coordinator_rank),
             out);
}

void Coordinator::take_made(NodeId from, const wire::PlanExchange& said, Attempt& attempt,
                            EffectWriter& out) {
  Exchange& exchange = *attempt.exchange;
  exchange.nodes[exchange.coordinator_rank] = from;
  if (exchange.made.size() == said.world_size) {  // it has not received the answer yet
    return send_plans(said.key, exchange, plan::ExchangeStage::told, from, out);
  }
  for (const wire::PlanOfRank& plan : said.plans) {
    if (exchange.made.emplace(plan.rank, plan.bytes).second) exchange.bytes += plan.bytes->size();
  }
  if (exchange.bytes > 2 * plan::kMaxExchangeBytes) {
    return abort(said.key, GiveUp::contradiction,
                 "the global plan takes more than " + human_bytes(plan::kMaxExchangeBytes), out);
  }
  if (exchange.made.size() < said.world_size) return;
  exchange.offers.clear();
  std::set<NodeId> nodes;
  for (const auto& [rank, node] : exchange.nodes) nodes.insert(node);
  for (NodeId node : nodes) send_plans(said.key, exchange, plan::ExchangeStage::told, node, out);
}

void Coordinator::send_plans(const AttemptKey& key, const Exchange& exchange, plan::ExchangeStage stage,
                             NodeId to, EffectWriter& out) {
  wire::PlanExchange said{key, stage, "", world_size(), options(), exchange.coordinator_rank, {}};
  if (stage == plan::ExchangeStage::gathered) {
    for (const auto& [rank, plan] : exchange.offers) said.plans.push_back({rank, plan});
  } else {
    for (const auto& [rank, plan] : exchange.made) {
      auto node = exchange.nodes.find(rank);
      if (node != exchange.nodes.end() && node->second == to) said.plans.push_back({rank, plan});
    }
  }
  Status refused;
  for (wire::PlanExchange& part : split_plans(std::move(said), facts_.message_bytes_max, &refused)) {
    out.send(to, RoleKind::shard_writer, std::move(part));
  }
  if (!refused.ok()) abort(key, GiveUp::contradiction, refused.message(), out);
}

std::string Coordinator::what_planners_lack(const Attempt& attempt) const {
  const Exchange& exchange = *attempt.exchange;
  std::vector<Rank> missing;
  for (Rank rank = 0; rank < world_size(); ++rank) {
    if (!exchange.offers.contains(rank) && !attempt.waiting.contains(rank)) missing.push_back(rank);
  }
  if (!missing.empty())
    return base::name_ranks(missing) + (missing.size() == 1 ? " did not say what its planner holds"
                                                            : " did not say what their planners hold");
  return "the planner of rank " + std::to_string(exchange.coordinator_rank) + " did not make the global plan";
}

}  // namespace shoal::actors
