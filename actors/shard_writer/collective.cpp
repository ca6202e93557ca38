// ShardWriter: collective saves. A rank declares what it holds before it stages, and receives its plan. This
// node sends the declarations of its ranks in one message, and passes the plans to the clients.
#include <algorithm>

#include "actors/shard_writer/shard_writer.h"

namespace shoal::actors {

void ShardWriter::on_layout(TimeNs now, ClientId client, const local::LayoutIs& said, EffectWriter& out) {
  auto attached = clients_.find(client);
  if (attached == clients_.end() || said.options.mode == SaveMode::collective_free) return;
  if (introduced_.insert(attached->second).second && !leaving_) {
    gone_backoff_.reset();
    speak_for_ranks(now + facts_.times.join_gather_ms * kMillisecond, out);
  }
  if (said.options.mode != SaveMode::collective) return;
  Collective& rank = collective_[attached->second];
  rank.options = said.options;
  rank.layouts.put(said.layout->id(), said.layout);
}

ShardWriter::Share* ShardWriter::asking_share(TimeNs now, ClientId client, const AttemptKey& key,
                                              EffectWriter& out) {
  auto attached = clients_.find(client);
  if (attached == clients_.end()) return nullptr;
  const Rank rank = attached->second;
  if (auto decided = decided_.find(key); decided != decided_.end()) {
    tell_outcome(client, key, decided->second.late, out);
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
    const bool asks = share.offer || share.waits || share.told;
    if (other == rank || !asks || share.follows_planner == follows_planner) continue;
    return Status(Code::invalid_argument, "the planner of rank " +
                                              std::to_string(follows_planner ? rank : other) +
                                              " has a global plan of its own, that of rank " +
                                              std::to_string(follows_planner ? other : rank) + " has none");
  }
  return ok_status();
}

void ShardWriter::on_plan_wanted(TimeNs now, ClientId client, const local::PlanWanted& said,
                                 EffectWriter& out) {
  const AttemptKey key{facts_.generation, said.step, said.attempt};
  Share* asking = asking_share(now, client, key, out);
  if (asking == nullptr) return;
  Share& share = *asking;
  Save& save = saves_.at(key);
  const Rank rank = clients_.at(client);
  share.client_knows = said.known;
  if (share.told) return tell_plan(key, share, out);
  share.waits = said.layout_id;
  share.offer.reset();
  share.follows_planner = said.follows_planner;
  auto refuse = [&](const std::string& why) {
    fail(now, key, rank, Status(Code::invalid_argument, why), out);
  };
  auto known = collective_.find(rank);
  if (known == collective_.end() || !known->second.layouts.contains(said.layout_id)) {
    return refuse("asks for a plan of a layout that it has not said");
  }
  for (const auto& [other, each] : collective_) {
    if (each.options == known->second.options) continue;
    return refuse("saves with other options than rank " + std::to_string(other));
  }
  if (Status alike = check_alike(save, rank, said.follows_planner); !alike.ok())
    return refuse(alike.message());
  report_soon(now, key, save, out);
}

void ShardWriter::send_local_plans(const AttemptKey& key, const Save& save, EffectWriter& out) {
  wire::LocalPlans said;
  for (const auto& [rank, share] : save.shares) {
    if (!share.asked || !share.waits) continue;
    const Collective& of_rank = collective_.at(rank);
    const bool fits = of_rank.told && of_rank.told->layout_id == *share.waits;
    said.ranks.push_back({rank, *share.waits});
    said.known.push_back(fits ? share_id_of(*of_rank.told) : PlanId{});
    said.options = of_rank.options;
    said.follows_planner = share.follows_planner;
  }
  if (said.ranks.empty()) return;
  said.key = key;
  said.host = facts_.host;
  said.world_size = world_size();
  out.send(kCoordinatorNode, RoleKind::coordinator, std::move(said));
}

void ShardWriter::on_global_plan(TimeNs now, const wire::GlobalPlan& said, EffectWriter& out) {
  auto found = saves_.find(said.key);
  if (found == saves_.end() || !found->second.failure.ok()) return;
  Save& save = found->second;
  for (const wire::RankPart& part : said.parts) {
    auto share = save.shares.find(part.rank);
    if (share == save.shares.end() || !share->second.asked || !share->second.waits) continue;
    Collective& of_rank = collective_.at(part.rank);
    auto layout = of_rank.layouts.find(*share->second.waits);
    SavePlanPtr plan = part.plan;
    // Null: the rank has this plan, as this node stated. A later save may have replaced it by one of another
    // layout.
    if (!plan && of_rank.told) plan = facts_.plans->moved(of_rank.told, said.roster_id);
    Status fits = !plan || layout == of_rank.layouts.end()
                      ? Status(Code::unavailable, "it is not known here any more")
                      : facts_.plans->check(*plan, *layout->second);
    if (!fits.ok())
      return fail(now, said.key, part.rank, fits.with_context("the plan that it was told"), out);
    share->second.told = of_rank.told = std::move(plan);
    share->second.waits.reset();
    tell_plan(said.key, share->second, out);
  }
}

void ShardWriter::tell_plan(const AttemptKey& key, const Share& share, EffectWriter& out) {
  if (!clients_.contains(share.listener)) return;
  const bool is_known = share.client_knows == share_id_of(*share.told);
  out.to_client(share.listener,
                local::PlanIs{key.step, key.attempt, share.told->roster_id, is_known ? nullptr : share.told});
}

// Plans by the plan that the rank received. If this node has restarted since, plans by the roster that the
// client names; that roster is in the root.
void ShardWriter::plan_told_share(TimeNs now, const AttemptKey& key, Rank rank, EffectWriter& out) {
  Share& share = saves_.at(key).shares.at(rank);
  const auto* staged = std::get_if<local::Staged>(share.message.get());
  const RosterId roster =
      staged != nullptr ? staged->roster_id : std::get<local::Written>(*share.message).share.roster_id;
  if (roster.is_zero()) {
    share.planned = true;
    const std::string why = collective_.contains(rank)
                                ? "staged what nobody has told it to"
                                : "saves in another mode than rank " +
                                      std::to_string(collective_.begin()->first) + " of its host";
    return fail(now, key, rank, Status(Code::invalid_argument, why), out);
  }
  const auto& layouts = collective_[rank].layouts;
  if (share.told && share.told->roster_id == roster) {
    if (auto layout = layouts.find(share.told->layout_id); layout != layouts.end()) {
      return write_share(now, key, rank, *share.told, *layout->second, out);
    }
  }
  KnownWorlds::Known* known = worlds_.find(roster);
  if (known == nullptr) return read_roster(roster, out);
  auto plan = plan_of(*known, rank);
  if (!plan.ok()) {
    share.planned = true;
    return fail(now, key, rank, plan.status(), out);
  }
  write_share(now, key, rank, **plan, known->world->layout_of(rank), out);
}

}  // namespace shoal::actors
