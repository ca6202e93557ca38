// ShardWriter: collective saves. A rank declares what it holds before it stages, and receives its plan. This
// node sends the declarations of its ranks in one message, and passes the plans to the clients.
#include <algorithm>

#include "actors/shard_writer/shard_writer.h"

namespace shoal::actors {

void ShardWriter::on_layout(TimeNs now, ClientId client, const local::LayoutUpdate& received,
                            EffectWriter& out) {
  auto attached = clients_.find(client);
  if (attached == clients_.end() || received.options.mode == SaveMode::collective_free) return;
  if (introduced_.insert(attached->second).second && !leaving_) {
    ended_backoff_.reset();
    speak_for_ranks(now + config_.timeouts.join_gather_ms * kMillisecond, out);
  }
  if (received.options.mode != SaveMode::collective) return;
  Collective& rank = collective_[attached->second];
  rank.options = received.options;
  rank.layouts.put(received.layout->id(), received.layout);
}

ShardWriter::Share* ShardWriter::asking_rank(TimeNs now, ClientId client, const AttemptKey& key,
                                             EffectWriter& out) {
  auto attached = clients_.find(client);
  if (attached == clients_.end()) return nullptr;
  const Rank rank = attached->second;
  if (auto decided = decided_.find(key); decided != decided_.end()) {
    notify_outcome(client, key, decided->second.late, out);
    return nullptr;
  }
  auto found = saves_.find(key);
  if (found == saves_.end() && saves_.size() >= kMaxSavesInFlight) {
    out.to_client(client, local::Refused{key.step, key.attempt, too_many_saves()});
    return nullptr;
  }
  if (found == saves_.end()) found = open_save(now, key, out);
  if (has_staged(found->second, rank)) {
    out.to_client(client, local::Refused{key.step, key.attempt, staged_before(key, rank)});
    return nullptr;
  }
  Share& share = found->second.shares[rank];
  share.client = share.listener = client;
  share.slab_in_use = false;
  share.asked = true;
  return &share;
}

Status ShardWriter::check_alike(const Save& save, Rank rank, bool follows_planner) {
  for (const auto& [other, share] : save.shares) {
    const bool asks = share.offer || share.waits || share.notified;
    if (other == rank || !asks || share.follows_planner == follows_planner) continue;
    return Status(Code::invalid_argument, "the planner of rank " +
                                              std::to_string(follows_planner ? rank : other) +
                                              " has a global plan of its own, that of rank " +
                                              std::to_string(follows_planner ? other : rank) + " has none");
  }
  return ok_status();
}

void ShardWriter::on_plan_request(TimeNs now, ClientId client, const local::PlanRequest& received,
                                  EffectWriter& out) {
  const AttemptKey key{config_.generation, received.step, received.attempt};
  Share* asking = asking_rank(now, client, key, out);
  if (asking == nullptr) return;
  Share& share = *asking;
  Save& save = saves_.at(key);
  const Rank rank = clients_.at(client);
  share.client_knows = received.known;
  if (share.notified) return send_plan(key, share, out);
  share.waits = received.layout_id;
  share.offer.reset();
  share.follows_planner = received.follows_planner;
  auto refuse = [&](const std::string& why) {
    fail(now, key, rank, Status(Code::invalid_argument, why), out);
  };
  auto known = collective_.find(rank);
  if (known == collective_.end() || !known->second.layouts.contains(received.layout_id)) {
    return refuse("asks for a plan of a layout that it has not said");
  }
  for (const auto& [other, each] : collective_) {
    if (each.options == known->second.options) continue;
    return refuse("saves with other options than rank " + std::to_string(other));
  }
  if (Status alike = check_alike(save, rank, received.follows_planner); !alike.ok())
    return refuse(alike.message());
  report_soon(now, key, save, out);
}

void ShardWriter::send_local_plans(const AttemptKey& key, const Save& save, EffectWriter& out) {
  wire::LocalPlans received;
  for (const auto& [rank, share] : save.shares) {
    if (!share.asked || !share.waits) continue;
    const Collective& of_rank = collective_.at(rank);
    const bool fits = of_rank.notified && of_rank.notified->layout_id == *share.waits;
    received.ranks.push_back({rank, *share.waits});
    received.known.push_back(fits ? assignment_id_of(*of_rank.notified) : PlanId{});
    received.options = of_rank.options;
    received.follows_planner = share.follows_planner;
  }
  if (received.ranks.empty()) return;
  received.key = key;
  received.host = config_.host;
  received.world_size = world_size();
  out.send(kCoordinatorNode, RoleKind::coordinator, std::move(received));
}

void ShardWriter::on_global_plan(TimeNs now, const wire::GlobalPlan& received, EffectWriter& out) {
  auto found = saves_.find(received.key);
  if (found == saves_.end() || !found->second.failure.ok()) return;
  Save& save = found->second;
  for (const wire::RankPart& part : received.parts) {
    auto share = save.shares.find(part.rank);
    if (share == save.shares.end() || !share->second.asked || !share->second.waits) continue;
    Collective& of_rank = collective_.at(part.rank);
    auto layout = of_rank.layouts.find(*share->second.waits);
    SavePlanPtr plan = part.plan;
    // Null: the rank has this plan, as this node stated. A later save may have replaced it by one of another
    // layout.
    if (!plan && of_rank.notified) plan = config_.plans->moved(of_rank.notified, received.roster_id);
    Status fits = !plan || layout == of_rank.layouts.end()
                      ? Status(Code::unavailable, "it is not known here any more")
                      : config_.plans->check(*plan, *layout->second);
    if (!fits.ok())
      return fail(now, received.key, part.rank, fits.with_context("the plan that it was told"), out);
    share->second.notified = of_rank.notified = std::move(plan);
    share->second.waits.reset();
    send_plan(received.key, share->second, out);
  }
}

void ShardWriter::send_plan(const AttemptKey& key, const Share& share, EffectWriter& out) {
  if (!clients_.contains(share.listener)) return;
  const bool is_known = share.client_knows == assignment_id_of(*share.notified);
  out.to_client(share.listener, local::PlanUpdate{key.step, key.attempt, share.notified->roster_id,
                                                  is_known ? nullptr : share.notified});
}

// Plans by the plan that the rank received. If this node has restarted since, plans by the roster that the
// client names; that roster is in the root.
void ShardWriter::plan_from_coordinator(TimeNs now, const AttemptKey& key, Rank rank, EffectWriter& out) {
  Share& share = saves_.at(key).shares.at(rank);
  const auto* staged = std::get_if<local::Staged>(share.message.get());
  const RosterId roster =
      staged != nullptr ? staged->roster_id : std::get<local::Written>(*share.message).assignment.roster_id;
  if (roster.is_zero()) {
    share.planned = true;
    const std::string why = collective_.contains(rank)
                                ? "staged what nobody has told it to"
                                : "saves in another mode than rank " +
                                      std::to_string(collective_.begin()->first) + " of its host";
    return fail(now, key, rank, Status(Code::invalid_argument, why), out);
  }
  const auto& layouts = collective_[rank].layouts;
  if (share.notified && share.notified->roster_id == roster) {
    if (auto layout = layouts.find(share.notified->layout_id); layout != layouts.end()) {
      return write_rank(now, key, rank, *share.notified, *layout->second, out);
    }
  }
  KnownWorlds::Known* known = worlds_.find(roster);
  if (known == nullptr) return read_roster(roster, out);
  auto plan = plan_of(*known, rank);
  if (!plan.ok()) {
    share.planned = true;
    return fail(now, key, rank, plan.status(), out);
  }
  write_rank(now, key, rank, **plan, known->world->layout_of(rank), out);
}

}  // namespace shoal::actors
