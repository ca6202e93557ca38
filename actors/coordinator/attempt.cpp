#include "actors/coordinator/attempt.h"

#include <algorithm>

namespace shoal::actors {

namespace {

size_t size_of(const wire::ShardsWritten& report) {
  size_t digests = 0;
  for (const wire::RankPlan& plan : report.plans) {
    if (plan.replicas) digests += sizeof(*plan.replicas) + plan.replicas->digests.size() * sizeof(uint64_t);
  }
  return sizeof(report) + digests + report.plans.size() * sizeof(wire::RankPlan) +
         report.files.size() * sizeof(wire::WrittenFile) + (report.user ? kMaxUserMetadataBytes : 0);
}

}  // namespace

// --- the commit condition ---

Attempt::Next Attempt::next(uint32_t world_size) {
  if (!takes_reports() || state_.is(AttemptState::publishing_roster)) return Next::wait;
  const auto& waiting = std::as_const(waiting_);
  for (auto each = waiting.lower_bound(world_size); each != waiting.end();
       each = waiting.lower_bound(world_size)) {
    waits_no_more(each->first);
  }
  const bool all_reported = reported_.size() == world_size;
  if (state_.is(AttemptState::awaiting_reports)) return all_reported ? Next::commit : Next::wait;
  if (reported_.size() + waiting_.size() < world_size) return Next::wait;
  if (!all_reported) return Next::make_roster;
  const RosterId& first = first_reported_under()->world().roster.id();
  const bool is_one_roster = std::all_of(reported_.begin(), reported_.end(), [&](const auto& each) {
    return each.second.under->world().roster.id() == first;
  });
  return is_one_roster ? Next::commit_as_reported : Next::make_roster;
}

storage::Manifest Attempt::make_manifest(const ExpectedPlans& under) const {
  storage::Manifest manifest;
  manifest.world = under.world_ptr();
  manifest.options = under.options();
  if (user_) manifest.user = or_none(user_->second);
  manifest.files.reserve(reported_.size());  // most ranks have one file
  for (const auto& [rank, reported] : reported_) {
    for (const wire::WrittenFile& file : reported.files) {
      manifest.files.push_back(
          {shard_file_name(rank, file.index), file.size, file.header_digest, rank, file.index});
      manifest.payload_bytes += file.payload_bytes;
    }
  }
  return manifest;
}

// --- reports ---

void Attempt::on_progress(TimeNs now, NodeId from, uint64_t amount) {
  uint64_t& known = progress_[from];
  if (amount <= known) return;
  known = amount;
  on_news(now);
}

// A later report of a node under one roster contains its earlier ones.
void Attempt::keep_early(TimeNs now, NodeId from, const wire::ShardsWritten& report, size_t* bytes_used) {
  const std::pair name(from, report.roster_id);
  auto kept = early_.find(name);
  const size_t kept_bytes = kept == early_.end() ? 0 : size_of(kept->second);
  if (*bytes_used - kept_bytes + size_of(report) > kMaxEarlyReportBytes) return;
  *bytes_used += size_of(report) - kept_bytes;
  if (size_of(report) > kept_bytes) on_news(now);
  early_.insert_or_assign(name, report);
}

Attempt::EarlyReports Attempt::take_early(size_t* bytes_used) {
  for (const auto& [from, report] : early_) *bytes_used -= size_of(report);
  return std::exchange(early_, {});
}

Status Attempt::take(TimeNs now, const wire::ShardsWritten& report,
                     const std::shared_ptr<ExpectedPlans>& under) {
  SHOAL_RETURN_IF_ERROR(under->check(report));
  SHOAL_RETURN_IF_ERROR(take_user(report));
  for (const wire::RankPlan& plan : report.plans) {
    auto [reported, fresh] = reported_.try_emplace(plan.rank, Reported{under, {}});
    waits_no_more(plan.rank);
    if (!fresh) continue;
    on_news(now);
    replicas_.take(plan.rank, plan.replicas);
    // The next node of a rank may have written by the newest roster, which is that of a later save.
    if (roster_) SHOAL_RETURN_IF_ERROR(check_same_pieces(reported->second, plan.rank));
  }
  for (const wire::WrittenFile& file : report.files) {
    auto& [reported_under, files] = reported_[file.rank];
    if (reported_under != under) continue;  // the first report of a rank counts
    if (files.size() == file.index) files.push_back(file);
  }
  return ok_status();
}

Status Attempt::take_user(const wire::ShardsWritten& report) {
  if (report.plans.empty()) return ok_status();
  const Rank rank = report.plans.front().rank;
  if (!user_) user_.emplace(rank, report.user);
  const auto& [first, user] = *user_;
  if (user == report.user) return ok_status();
  return check_same_user_metadata(first, or_none(user), rank, or_none(report.user));
}

bool Attempt::has_reported(Rank rank) const {
  if (reported_.contains(rank)) return true;
  return std::any_of(early_.begin(), early_.end(), [&](const auto& early) {
    const auto& plans = early.second.plans;
    return std::any_of(plans.begin(), plans.end(), [&](const auto& plan) { return plan.rank == rank; });
  });
}

bool Attempt::has_staged(Rank rank) const {
  const auto waiting = waiting_.find(rank);
  return waiting == waiting_.end() ? has_reported(rank) : waiting->second.has_staged;
}

std::shared_ptr<ExpectedPlans> Attempt::reported_under(Rank rank) const {
  auto found = reported_.find(rank);
  return found == reported_.end() ? nullptr : found->second.under;
}

// --- ranks that wait for the attempt's own roster ---

void Attempt::wait_for_roster(TimeNs now, Rank rank, const Waiting& waiting) {
  if (!waiting_.contains(rank)) on_news(now);
  set_waiting(rank, waiting);
}

void Attempt::set_waiting(Rank rank, const Waiting& waiting) {
  waits_no_more(rank);
  waiting_.insert_or_assign(rank, waiting);
  ++waiting_layouts_[waiting.layout_id];
}

void Attempt::waits_no_more(Rank rank) {
  const auto known = waiting_.find(rank);
  if (known == waiting_.end()) return;
  const auto layout = waiting_layouts_.find(known->second.layout_id);
  if (--layout->second == 0) waiting_layouts_.erase(layout);
  waiting_.erase(rank);
}

bool Attempt::wait_for_plan(Rank rank, const Waiting& waiting) {
  if (reported_.contains(rank)) return false;
  const auto known = waiting_.find(rank);
  if (known != waiting_.end() && known->second == waiting) return false;
  set_waiting(rank, waiting);
  return true;
}

Status Attempt::adopt_roster(std::shared_ptr<ExpectedPlans> roster) {
  on(AttemptTrigger::roster_known);
  roster_ = std::move(roster);
  for (const auto& [rank, reported] : reported_) {
    SHOAL_RETURN_IF_ERROR(check_same_pieces(reported, rank));
  }
  return ok_status();
}

Status Attempt::check_same_pieces(const Reported& reported, Rank rank) const {
  const RosterId& under = reported.under->world().roster.id();
  const RosterId& own = roster_->world().roster.id();
  if (under == own) return ok_status();
  SHOAL_ASSIGN_OR_RETURN(bool same, roster_->same_pieces(*reported.under, rank));
  if (same) return ok_status();
  return Status(Code::aborted, "rank " + std::to_string(rank) + " saved under roster " + under.short_hex() +
                                   ", but the layouts of this save make roster " + own.short_hex() +
                                   ", which assigns it other pieces");
}

Status Attempt::check_planners(bool follows_planner, const std::string& host) {
  if (!follows_planner_) follows_planner_.emplace(follows_planner, host);
  const auto& [follows, first_host] = *follows_planner_;
  if (follows == follows_planner) return ok_status();
  return Status(Code::aborted, "the planners of host " + (follows ? first_host : host) +
                                   " make a global plan, but those of host " + (follows ? host : first_host) +
                                   " make none");
}

Missing Attempt::what_is_missing(uint32_t world_size, const RankPresence& presence) const {
  if (plan_gather && !plan_gather->is_made()) {
    return {{}, plan_gather->what_is_missing(world_size, waiting_), ""};
  }
  Missing missing;
  size_t durable = 0;
  for (Rank rank = 0; rank < world_size; ++rank) {
    const bool is_durable = has_reported(rank);
    durable += is_durable;
    if (!is_durable && !waiting_.contains(rank)) missing.ranks.push_back(rank);
  }
  const bool awaits_plans =
      std::any_of(waiting_.begin(), waiting_.end(), [](const auto& each) { return !each.second.has_staged; });
  if (!missing.ranks.empty()) {
    missing.what = (awaits_plans && !roster_ ? "no layout came from " : "nothing came from ") +
                   presence.name_ranks(missing.ranks);
    missing.detail =
        std::to_string(durable) + " of " + std::to_string(world_size) + " ranks have reported durable files";
  } else if (!waiting_.empty()) {
    missing.what = presence.name_ranks({waiting_.begin()->first});
    if (awaits_plans) {
      missing.what += roster_ ? " received its plan but did not report" : " could not be sent its plan";
    } else {
      missing.what += roster_ ? " changed its layout, and did not write the pieces of its new plan"
                              : " changed its layout, but no roster with the new layout could be made";
    }
  } else {
    missing.what = "every rank has reported, but the root did not say whether there is a decision";
  }
  return missing;
}

}  // namespace shoal::actors
