// ShardWriter: collective saves. A rank declares what it holds before it stages, and receives its plan. This
// node sends the declarations of its ranks in one message, and passes the plans to the clients.
#include <algorithm>

#include "actors/shard_writer/shard_writer.h"
#include "plan/saving/options_difference.h"

namespace shoal::actors {

void ShardWriter::on_layout(TimeNs now, ClientId client, const local::LayoutUpdate& message,
                            EffectWriter& out) {
  auto attached = clients_.find(client);
  if (attached == clients_.end() || message.options.mode == SaveMode::collective_free) return;
  if (introduced_.insert(attached->second).second && !drain_.have_ranks_ended()) {
    ended_backoff_.reset();
    report_ranks(now + config_.timeouts.join_gather_ms * kMillisecond, out);
  }
  if (message.options.mode != SaveMode::collective) return;
  Collective& rank = collective_[attached->second];
  rank.options = message.options;
  rank.layouts.put(message.layout->id(), message.layout);
}

RankSave* ShardWriter::planning_rank(TimeNs now, ClientId client, const AttemptKey& key, EffectWriter& out) {
  auto attached = clients_.find(client);
  if (attached == clients_.end()) return nullptr;
  const Rank rank = attached->second;
  if (auto decided = decided_.find(key); decided != decided_.end()) {
    notify_outcome(client, key, decided->second.late, out);
    return nullptr;
  }
  auto found = find_or_open(now, key, out);
  if (found == saves_.end()) {
    out.to_client(client, local::Refused{key.step, key.attempt, too_many_saves()});
    return nullptr;
  }
  NodeSave& save = found->second;
  if (save.has_staged(rank)) {
    out.to_client(client, local::Refused{key.step, key.attempt, staged_before(key, rank)});
    return nullptr;
  }
  auto known = save.ranks.find(rank);
  RankSave& rank_save = known != save.ranks.end() ? known->second : save.add(rank, RankSaveState::planning);
  rank_save.client = rank_save.listener = client;
  return &rank_save;
}

void ShardWriter::on_plan_request(TimeNs now, ClientId client, const local::PlanRequest& message,
                                  EffectWriter& out) {
  const AttemptKey key{config_.generation, message.step, message.attempt};
  RankSave* planning = planning_rank(now, client, key, out);
  if (planning == nullptr) return;
  RankSave& rank_save = *planning;
  NodeSave& save = saves_.at(key);
  const Rank rank = clients_.at(client);
  rank_save.client_knows = message.known;
  if (rank_save.plan) return send_plan(key, rank_save, out);
  rank_save.on(RankSaveTrigger::requested_plan);
  rank_save.layout_id = message.layout_id;
  rank_save.offer.reset();
  rank_save.follows_planner = message.follows_planner;
  auto refuse = [&](const std::string& why) {
    fail(now, key, rank, Status(Code::invalid_argument, why), out);
  };
  auto known = collective_.find(rank);
  if (known == collective_.end() || !known->second.layouts.contains(message.layout_id)) {
    return refuse("requested a plan for a layout that it has not declared");
  }
  for (const auto& [other, each] : collective_) {
    if (each.options == known->second.options) continue;
    return refuse("saves with other options than rank " + std::to_string(other) + ", " +
                  plan::options_difference(known->second.options, each.options));
  }
  if (Status alike = save.check_planners(rank, message.follows_planner); !alike.ok()) {
    return refuse(alike.message());
  }
  report_soon(now, key, save, out);
}

void ShardWriter::send_local_plans(const AttemptKey& key, const NodeSave& save, EffectWriter& out) {
  wire::LocalPlans plans;
  for (const auto& [rank, rank_save] : save.ranks) {
    if (!rank_save.is(RankSaveState::awaiting_plan)) continue;
    const Collective& of_rank = collective_.at(rank);
    const bool fits = of_rank.plan && of_rank.plan->layout_id == rank_save.layout_id;
    plans.ranks.push_back({rank, rank_save.layout_id});
    plans.known.push_back(fits ? assignment_id_of(*of_rank.plan) : PlanId{});
    plans.options = of_rank.options;
    plans.follows_planner = rank_save.follows_planner;
  }
  if (plans.ranks.empty()) return;
  plans.key = key;
  plans.host = config_.host;
  plans.world_size = world_size();
  out.send(kCoordinatorNode, RoleKind::coordinator, std::move(plans));
}

void ShardWriter::on_global_plan(TimeNs now, const wire::GlobalPlan& message, EffectWriter& out) {
  auto found = saves_.find(message.key);
  if (found == saves_.end() || found->second.has_failed()) return;
  NodeSave& save = found->second;
  for (const wire::RankPart& part : message.parts) {
    auto waiting = save.ranks.find(part.rank);
    if (waiting == save.ranks.end() || !waiting->second.is(RankSaveState::awaiting_plan)) continue;
    RankSave& rank_save = waiting->second;
    Collective& of_rank = collective_.at(part.rank);
    auto layout = of_rank.layouts.find(rank_save.layout_id);
    SavePlanPtr plan = part.plan;
    // Null: the rank has this plan, as this node stated. A later save may have replaced it by one of another
    // layout.
    if (!plan && of_rank.plan) plan = config_.plans->moved(of_rank.plan, message.roster_id);
    Status fits = !plan || layout == of_rank.layouts.end()
                      ? Status(Code::unavailable, "this node no longer knows it")
                      : config_.plans->check(*plan, *layout->second);
    if (!fits.ok()) {
      return fail(now, message.key, part.rank, fits.with_context("the plan that it received"), out);
    }
    rank_save.plan = of_rank.plan = std::move(plan);
    rank_save.on(RankSaveTrigger::received_plan);
    send_plan(message.key, rank_save, out);
  }
}

void ShardWriter::send_plan(const AttemptKey& key, const RankSave& rank_save, EffectWriter& out) {
  if (!clients_.contains(rank_save.listener)) return;
  const bool is_known = rank_save.client_knows == assignment_id_of(*rank_save.plan);
  out.to_client(rank_save.listener, local::PlanUpdate{key.step, key.attempt, rank_save.plan->roster_id,
                                                      is_known ? nullptr : rank_save.plan});
}

// Plans by the plan that the rank received. If this node has restarted since, plans by the roster that the
// client names; that roster is in the root.
void ShardWriter::plan_from_coordinator(TimeNs now, const AttemptKey& key, Rank rank, EffectWriter& out) {
  RankSave& rank_save = saves_.at(key).ranks.at(rank);
  const auto* staged = std::get_if<local::Staged>(rank_save.message.get());
  const RosterId roster = staged != nullptr
                              ? staged->roster_id
                              : std::get<local::Written>(*rank_save.message).assignment.roster_id;
  if (roster.is_zero()) {
    const std::string why = collective_.contains(rank)
                                ? "staged the save without a plan from the coordinator"
                                : "saves in another mode than rank " +
                                      std::to_string(collective_.begin()->first) + " of its host";
    return fail_planning(now, key, rank, Status(Code::invalid_argument, why), out);
  }
  const auto& layouts = collective_[rank].layouts;
  if (rank_save.plan && rank_save.plan->roster_id == roster) {
    if (auto layout = layouts.find(rank_save.plan->layout_id); layout != layouts.end()) {
      const SavePlanPtr plan = rank_save.plan;
      return write_rank(now, key, rank, *plan, *layout->second, out);
    }
  }
  KnownWorlds::Known* known = worlds_.find(roster);
  if (known == nullptr) return read_roster(roster, out);
  auto plan = plan_of(*known, rank);
  if (!plan.ok()) return fail_planning(now, key, rank, plan.status(), out);
  write_rank(now, key, rank, **plan, known->world->layout_of(rank), out);
}

}  // namespace shoal::actors
