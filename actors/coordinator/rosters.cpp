// Coordinator: rosters after the first one of a generation.
//
// The roster of an attempt is made of its own layouts: those with which each rank saved. A rank may have
// reported under another roster. Then the attempt is committed only if its own roster gives that rank the
// same share. The newest roster is only a hint: ranks that save next plan by it.
#include <algorithm>
#include <utility>

#include "actors/coordinator/coordinator.h"
#include "actors/messages/message_bounds.h"

namespace shoal::actors {

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
  if (plans_->options().mode == SaveMode::collective) return;  // each rank receives only its own plan
  for (NodeId node : nodes_) {
    told_roster_.tell(node);
    out.send(node, RoleKind::planner, wire::RosterIs{world, plans_->options(), kRuleVersion});
  }
}

void Coordinator::read_roster(const RosterId& id, EffectWriter& out) {
  if (!reading_rosters_.insert(id).second) return;
  operations_.start(
      operation::ReadRoster{facts_.generation, id}, out,
      [this, id](TimeNs now, Result<OperationResult> result, EffectWriter& then_out) {
        reading_rosters_.erase(id);
        auto record = result_as<storage::RosterRecord>(std::move(result));
        if (record.ok() && !find_roster(id)) {
          if (rosters_.size() >= kMaxRosters) rosters_.pop_front();
          rosters_.insert(rosters_.end() - (rosters_.empty() ? 0 : 1),
                          std::make_shared<ExpectedPlans>(facts_, record->world, record->options));
        } else if (!record.ok()) {
          then_out.warning("roster " + id.short_hex() + ": " + record.status().to_string());
        }
        const bool is_nowhere = record.status().code() == Code::not_found;
        for (const AttemptKey& key : open_keys()) {
          if (record.ok()) take_early(now, key, then_out);
          auto open = attempts_.find(key);
          if (!is_nowhere || open == attempts_.end()) continue;
          for (const auto& [from, report] : open->second.early) {
            if (from.second != id) continue;
            abort(key, GiveUp::contradiction,
                  "ranks saved under roster " + id.short_hex() + ", which this generation does not have",
                  then_out);
            break;
          }
        }
      });
}

// --- layouts of ranks that stage all that they hold ---

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
  std::erase_if(layouts_asked_, [&](const auto& layout) { return !named.contains(layout.first); });
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
  for (const auto& [rank, reported] : attempt.reported) {  // of a roster that is no longer in rosters_
    if (reported.under->world().layout_of(rank).id() == id) return within(*reported.under);
  }
  return nullptr;
}

void Coordinator::on_layouts_staged(TimeNs now, NodeId from, const wire::LayoutsStaged& staged,
                                    EffectWriter& out) {
  nodes_.insert(from);
  std::vector<Rank> ranks;
  for (const wire::RankLayout& rank : staged.ranks) ranks.push_back(rank.rank);
  heard_of(from, ranks);
  if (answer_decided(from, staged.key, out)) return;
  Attempt* attempt = open_attempt(now, staged.key, out);
  if (attempt == nullptr) return;
  out.send(from, RoleKind::shard_writer, wire::Pending{staged.key});
  if (attempt->phase == Phase::publishing) return;
  ask_again(from);
  std::shared_ptr<ExpectedPlans> answer = attempt->named;
  for (const wire::RankLayout& rank : staged.ranks) {
    auto reported = attempt->reported.find(rank.rank);
    if (reported == attempt->reported.end()) {
      if (!attempt->waiting.contains(rank.rank)) attempt->last_news = now;
      attempt->waiting.insert_or_assign(rank.rank, Waiting{from, rank.layout_id});
    } else if (!answer) {
      answer = reported->second.under;  // an earlier node of this rank reported under this roster
    }
  }
  if (answer) {
    return out.send(from, RoleKind::shard_writer, wire::PlanBy{staged.key, answer->world().roster.id()});
  }
  consider_complete(staged.key, out);
  look_for_gone(now, staged.key, out);
}

void Coordinator::ask_again(NodeId node) {
  std::erase_if(layouts_asked_, [&](const auto& asked) { return asked.second == node; });
}

bool Coordinator::has_layouts(const Attempt& attempt, EffectWriter& out) {
  std::map<NodeId, std::vector<LayoutId>> wanted;
  bool all = true;
  // The last layout that is here, or requested already. Neighbouring ranks mostly have the same layout.
  const LayoutId* settled = nullptr;
  for (const auto& [rank, waiting] : attempt.waiting) {
    if (settled != nullptr && *settled == waiting.layout_id) continue;
    if (find_layout(attempt, waiting.layout_id)) {
      settled = &waiting.layout_id;
      continue;
    }
    all = false;
    staged_layouts_.try_emplace(waiting.layout_id);
    // Requested from one node; from another if that one is lost; again after the node repeats LayoutsStaged.
    auto [asked, fresh] = layouts_asked_.try_emplace(waiting.layout_id, waiting.node);
    if (!fresh && nodes_.contains(asked->second)) {
      settled = &waiting.layout_id;
      continue;
    }
    asked->second = waiting.node;
    wanted[waiting.node].push_back(waiting.layout_id);
  }
  for (auto& [node, ids] : wanted) out.send(node, RoleKind::planner, wire::LayoutsWanted{std::move(ids)});
  return all;
}

// --- the roster of an attempt ---

void Coordinator::consider_complete(const AttemptKey& key, EffectWriter& out) {
  auto found = attempts_.find(key);
  if (found == attempts_.end() || found->second.phase != Phase::gathering || world_size() == 0) return;
  Attempt& attempt = found->second;
  if (attempt.naming) return;
  attempt.waiting.erase_from(world_size());
  const bool all_reported = attempt.reported.size() == world_size();
  if (attempt.named) {
    if (all_reported) commit(key, attempt, *attempt.named, out);
    return;
  }
  if (attempt.reported.size() + attempt.waiting.size() < world_size()) return;
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
  prefer(first, out);  // a coordinator that began after the first save does not know it as the newest
  commit(key, attempt, *first, out);
}

uint32_t Coordinator::world_size() const {
  if (plans_) return plans_->world().roster.world_size();
  return collective_ ? collective_->world_size : 0;
}

const SaveOptions& Coordinator::options() const {
  return plans_ ? plans_->options() : collective_->options;
}

std::vector<uint32_t> Coordinator::hosts() const {
  std::vector<uint32_t> numbers;
  std::map<std::string, uint32_t> named;
  for (Rank rank = 0; rank < world_size(); ++rank) {
    numbers.push_back(plans_ ? plans_->world().roster.host_of(rank)
                             : named.try_emplace(collective_->host_of.at(rank), named.size()).first->second);
  }
  return numbers;
}

Result<std::shared_ptr<const World>> Coordinator::world_of(const Attempt& attempt) const {
  std::vector<LayoutId> layouts;
  for (Rank rank = 0; rank < world_size(); ++rank) {
    auto waiting = attempt.waiting.find(rank);
    if (!plans_ && !collective_->host_of.contains(rank)) {  // some ranks wait for plans, this one does not
      return Status(Code::invalid_argument,
                    "rank " + std::to_string(rank) + " saves in another mode than the ranks that wait");
    }
    layouts.push_back(waiting != attempt.waiting.end()
                          ? waiting->second.layout_id
                          : attempt.reported.at(rank).under->world().layout_of(rank).id());
  }
  auto world = std::make_shared<World>();
  SHOAL_ASSIGN_OR_RETURN(world->roster, Roster::make(layouts, hosts()));
  for (const LayoutId& id : world->roster.layout_ids()) world->layouts.push_back(find_layout(attempt, id));
  SHOAL_RETURN_IF_ERROR(validate_world(*world));
  SHOAL_RETURN_IF_ERROR(check_coverage(*world, options()));
  if (options().mode != SaveMode::collective) {
    SHOAL_RETURN_IF_ERROR(check_roster_fits(*world, facts_.message_bytes_max));
  }
  return std::shared_ptr<const World>(std::move(world));
}

void Coordinator::make_roster(const AttemptKey& key, Attempt& attempt, EffectWriter& out) {
  auto world = world_of(attempt);
  if (!world.ok()) {
    return abort(key, GiveUp::contradiction,
                 "no roster can be made of the layouts of this save: " + world.status().message(), out);
  }
  if (auto known = find_roster((*world)->roster.id())) return roster_named(key, known, out);
  attempt.naming = true;
  const storage::RosterRecord record{*world, options(), kRuleVersion};
  const bool is_first = !plans_;  // collective: the first save makes the first roster
  if_in_office(out, [this, key, record, is_first](TimeNs, EffectWriter& then_out) {
    operations_.start(
        operation::PublishRoster{facts_.generation, record, is_first}, then_out,
        [this, key, record](TimeNs now, Result<OperationResult> result, EffectWriter& last_out) {
          auto stands = result_as<storage::RosterRecord>(std::move(result));
          auto open = attempts_.find(key);
          if (open == attempts_.end()) return;
          open->second.naming = false;
          if (!stands.ok()) {
            return abort(key, GiveUp::contradiction,
                         "its roster could not be published: " + stands.status().message(), last_out);
          }
          if (stands->world->roster.id() != record.world->roster.id()) {  // another was created first
            if (!plans_) roster_stands(now, *stands, last_out);
            return consider_complete(key, last_out);
          }
          // Another attempt may have the same roster.
          auto known = find_roster(stands->world->roster.id());
          roster_named(
              key, known ? known : std::make_shared<ExpectedPlans>(facts_, stands->world, stands->options),
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
    if (!fits.ok()) return abort(key, GiveUp::contradiction, fits.message(), out);
  }
  std::set<NodeId> told;
  for (const auto& [rank, waiting] : attempt.waiting) {
    if (!waiting.has_staged || !told.insert(waiting.node).second) continue;
    out.send(waiting.node, RoleKind::shard_writer, wire::PlanBy{key, plans->world().roster.id()});
  }
  std::set<NodeId> asked;
  for (const auto& [rank, waiting] : attempt.waiting) {
    if (!waiting.has_staged) asked.insert(waiting.node);
  }
  for (NodeId node : asked) send_global_plan(key, node, out);
  consider_complete(key, out);
}

}  // namespace shoal::actors
