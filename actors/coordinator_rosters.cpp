// Coordinator: rosters after the first one of a generation.
//
// The roster of an attempt is what its own layouts make: that with which each rank saved. Where a rank has
// reported under another roster, the attempt is committed only if its own gives that rank the very same
// share. Which roster is the newest is a hint alone: what ranks that save next plan by.
#include <algorithm>
#include <utility>

#include "actors/coordinator_internal.h"
#include "actors/message_bounds.h"

namespace shoal {

std::shared_ptr<ExpectedPlans> Coordinator::find_roster(const RosterId& id) const {
  for (const auto& each : rosters_) {
    if (each->world().roster.id() == id) return each;
  }
  return nullptr;
}

void Coordinator::prefer(std::shared_ptr<ExpectedPlans> plans, EffectWriter& out) {
  if (plans_ == plans) return;
  const std::shared_ptr<const World> world = plans->world_ptr();
  std::erase(rosters_, plans);
  rosters_.push_back(plans);
  if (rosters_.size() > kMaxRosters) rosters_.pop_front();
  plans_ = std::move(plans);
  out.info("roster " + world->roster.id().short_hex() + ": " + std::to_string(world->roster.world_size()) +
           " ranks, " + std::to_string(world->layouts.size()) + " layouts");
  for (NodeId node : nodes_) {
    out.send(node, RoleKind::planner, wire::RosterIs{world, plans_->options(), kRuleVersion});
  }
}

void Coordinator::read_roster(const RosterId& id, EffectWriter& out) {
  if (!reading_rosters_.insert(id).second) return;
  operations_.start(
      operation::ReadRoster{facts_.generation, id}, out,
      [this, id](TimeNs, Result<OperationResult> result, EffectWriter& then_out) {
        reading_rosters_.erase(id);
        auto record = result_as<RosterRecord>(std::move(result));
        if (record.ok() && !find_roster(id)) {
          if (rosters_.size() >= kMaxRosters) rosters_.pop_front();
          rosters_.insert(rosters_.end() - (rosters_.empty() ? 0 : 1),
                          std::make_shared<ExpectedPlans>(record->world, record->options));
        } else if (!record.ok()) {
          then_out.warning("roster " + id.short_hex() + ": " + record.status().to_string());
        }
        const bool is_nowhere = record.status().code() == Code::not_found;
        for (const AttemptKey& key : open_keys()) {
          if (record.ok()) take_early(key, then_out);
          auto open = attempts_.find(key);
          if (!is_nowhere || open == attempts_.end()) continue;
          for (const auto& [from, report] : open->second.early) {
            if (from.second != id) continue;
            abort(key, "ranks saved under roster " + id.short_hex() + ", which this generation does not have",
                  then_out);
            break;
          }
        }
      });
}

// --- layouts of what is staged whole ---

void Coordinator::take_staged_layout(const LayoutPtr& layout) {
  auto wanted = staged_layouts_.find(layout->id());
  if (wanted != staged_layouts_.end() && !wanted->second) wanted->second = layout;
}

void Coordinator::forget_staged_layouts() {
  if (staged_layouts_.empty()) return;
  std::set<LayoutId> named;
  for (const auto& [key, attempt] : attempts_) {
    for (const auto& [rank, waiting] : attempt.waiting) named.insert(waiting.layout_id);
  }
  std::erase_if(staged_layouts_, [&](const auto& layout) { return !named.contains(layout.first); });
}

LayoutPtr Coordinator::find_layout(const Attempt& attempt, const LayoutId& id) const {
  auto staged = staged_layouts_.find(id);
  if (staged != staged_layouts_.end() && staged->second) return staged->second;
  auto within = [&](const ExpectedPlans& plans) -> LayoutPtr {
    for (const LayoutPtr& layout : plans.world().layouts) {
      if (layout->id() == id) return layout;
    }
    return nullptr;
  };
  for (const auto& each : rosters_) {
    if (LayoutPtr layout = within(*each)) return layout;
  }
  for (const auto& [rank, reported] : attempt.reported) {  // one that is forgotten by now
    if (reported.under->world().layout_of(rank).id() == id) return within(*reported.under);
  }
  return nullptr;
}

void Coordinator::on_layouts_staged(TimeNs now, NodeId from, const wire::LayoutsStaged& staged,
                                    EffectWriter& out) {
  nodes_.insert(from);
  if (answer_decided(from, staged.key, out)) return;
  Attempt* attempt = open_attempt(now, staged.key, out);
  if (attempt == nullptr) return;
  out.send(from, RoleKind::shard_writer, wire::Pending{staged.key});
  if (attempt->phase == Phase::publishing) return;
  std::shared_ptr<ExpectedPlans> answer = attempt->named;
  std::vector<Rank> ranks;
  for (const wire::RankLayout& rank : staged.ranks) {
    ranks.push_back(rank.rank);
    auto reported = attempt->reported.find(rank.rank);
    if (reported == attempt->reported.end()) {
      attempt->waiting.insert_or_assign(rank.rank, Waiting{from, rank.layout_id});
    } else if (!answer) {
      answer = reported->second.under;  // by an earlier node of this rank: it wrote by this one
    }
  }
  heard_of(from, ranks);
  if (answer) {
    return out.send(from, RoleKind::shard_writer, wire::PlanBy{staged.key, answer->world().roster.id()});
  }
  consider_complete(staged.key, out);
  look_for_gone(now, staged.key, out);
}

bool Coordinator::has_layouts(const Attempt& attempt, EffectWriter& out) {
  std::map<NodeId, std::vector<LayoutId>> wanted;
  for (const auto& [rank, waiting] : attempt.waiting) {
    if (find_layout(attempt, waiting.layout_id)) continue;
    staged_layouts_.try_emplace(waiting.layout_id);
    auto& of_node = wanted[waiting.node];
    if (std::find(of_node.begin(), of_node.end(), waiting.layout_id) == of_node.end()) {
      of_node.push_back(waiting.layout_id);
    }
  }
  const bool all = wanted.empty();
  for (auto& [node, ids] : wanted) out.send(node, RoleKind::planner, wire::LayoutsWanted{std::move(ids)});
  return all;
}

// --- the roster of an attempt ---

void Coordinator::consider_complete(const AttemptKey& key, EffectWriter& out) {
  auto found = attempts_.find(key);
  if (found == attempts_.end() || found->second.phase != Phase::gathering || !plans_) return;
  Attempt& attempt = found->second;
  if (attempt.naming) return;
  attempt.waiting.erase(attempt.waiting.lower_bound(plans_->world().roster.world_size()),
                        attempt.waiting.end());
  const bool all_reported = attempt.reported.size() == plans_->world().roster.world_size();
  if (attempt.named) {
    if (all_reported) commit(key, attempt, *attempt.named, out);
    return;
  }
  if (attempt.reported.size() + attempt.waiting.size() < plans_->world().roster.world_size()) return;
  if (!all_reported) {
    if (has_layouts(attempt, out)) make_roster(key, attempt, out);
    return;
  }
  const std::shared_ptr<ExpectedPlans> first = attempt.reported.begin()->second.under;
  for (const auto& [rank, reported] : attempt.reported) {
    if (reported.under->world().roster.id() != first->world().roster.id()) {
      return make_roster(key, attempt, out);
    }
  }
  prefer(first, out);  // a coordinator that began since does not know it to be the newest
  commit(key, attempt, *first, out);
}

Result<std::shared_ptr<const World>> Coordinator::world_of(const Attempt& attempt) const {
  const Roster& before = plans_->world().roster;
  std::vector<LayoutId> layouts;
  std::vector<uint32_t> hosts;
  for (Rank rank = 0; rank < before.world_size(); ++rank) {
    auto waiting = attempt.waiting.find(rank);
    layouts.push_back(waiting != attempt.waiting.end()
                          ? waiting->second.layout_id
                          : attempt.reported.at(rank).under->world().layout_of(rank).id());
    hosts.push_back(before.host_of(rank));
  }
  auto world = std::make_shared<World>();
  SHOAL_ASSIGN_OR_RETURN(world->roster, Roster::make(layouts, hosts));
  for (const LayoutId& id : world->roster.layout_ids()) world->layouts.push_back(find_layout(attempt, id));
  SHOAL_RETURN_IF_ERROR(validate_world(*world));
  SHOAL_RETURN_IF_ERROR(check_coverage(*world, plans_->options()));
  SHOAL_RETURN_IF_ERROR(check_roster_fits(*world, facts_.message_bytes_max));
  return std::shared_ptr<const World>(std::move(world));
}

void Coordinator::make_roster(const AttemptKey& key, Attempt& attempt, EffectWriter& out) {
  auto world = world_of(attempt);
  if (!world.ok()) {
    return abort(key, "no roster can be made of the layouts of this save: " + world.status().message(), out);
  }
  if (auto known = find_roster((*world)->roster.id())) return roster_named(key, known, out);
  attempt.naming = true;
  const RosterRecord record{*world, plans_->options(), kRuleVersion};
  if_in_office(out, [this, key, record](TimeNs, EffectWriter& then_out) {
    operations_.start(
        operation::PublishRoster{facts_.generation, record, false}, then_out,
        [this, key](TimeNs, Result<OperationResult> result, EffectWriter& last_out) {
          auto stands = result_as<RosterRecord>(std::move(result));
          auto open = attempts_.find(key);
          if (open == attempts_.end()) return;
          open->second.naming = false;
          if (!stands.ok()) {
            return abort(key, "its roster could not be published: " + stands.status().message(), last_out);
          }
          // Another attempt's may be the same.
          auto known = find_roster(stands->world->roster.id());
          roster_named(key, known ? known : std::make_shared<ExpectedPlans>(stands->world, stands->options),
                       last_out);
        });
  });
}

Status Coordinator::check_share(const ExpectedPlans& named, const Reported& reported, Rank rank) {
  if (reported.under->world().roster.id() == named.world().roster.id()) return ok_status();
  SHOAL_ASSIGN_OR_RETURN(bool same, named.same_share(*reported.under, rank));
  if (same) return ok_status();
  return Status(Code::aborted, "rank " + std::to_string(rank) + " saved under roster " +
                                   reported.under->world().roster.id().short_hex() +
                                   ", the layouts of this save make roster " +
                                   named.world().roster.id().short_hex() + ", which gives it another share");
}

void Coordinator::roster_named(const AttemptKey& key, std::shared_ptr<ExpectedPlans> plans,
                               EffectWriter& out) {
  prefer(plans, out);
  auto found = attempts_.find(key);
  if (found == attempts_.end() || found->second.phase != Phase::gathering) return;
  Attempt& attempt = found->second;
  attempt.named = plans;
  for (const auto& [rank, reported] : attempt.reported) {
    Status fits = check_share(*plans, reported, rank);
    if (!fits.ok()) return abort(key, fits.message(), out);
  }
  std::set<NodeId> told;
  for (const auto& [rank, waiting] : attempt.waiting) {
    if (!told.insert(waiting.node).second) continue;
    out.send(waiting.node, RoleKind::shard_writer, wire::PlanBy{key, plans->world().roster.id()});
  }
  consider_complete(key, out);
}

}  // namespace shoal
