// Coordinator: ranks that stage nothing more, hosts that are lost, and how it comes to an end itself.
//
// A save that waits for such a rank can never be committed: it is aborted when that is known, and not at its
// deadline. A trainer that has ended stays so. A node that stops may be followed by another, which its
// clients offer what they hold: it gets drain_patience_ms, unless the coordinator stops as well. A node whose
// session ends without a word gets host_lost_ms, and so do its trainers, who may start another.
//
// A coordinator that is told to stop while trainers of its host live will be followed by another one. It
// finishes what it can within drain_patience_ms, and leaves the rest undecided.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "actors/coordinator_internal.h"
#include "base/rank_names.h"

namespace shoal {

namespace {

// The hosts of a rack end at one instant; this is how far apart a coordinator may notice it.
constexpr TimeNs kOneLoss = 3'000 * kMillisecond;

std::string name_hosts(const std::set<std::string>& hosts) {
  const size_t named = std::min(hosts.size(), kRanksNamed);
  std::string out = fmt::format("host{} {}", hosts.size() == 1 ? "" : "s",
                                fmt::join(hosts.begin(), std::next(hosts.begin(), named), ", "));
  if (hosts.size() > named) out += fmt::format(" and {} more", hosts.size() - named);
  return out;
}

}  // namespace

bool Coordinator::has_reported(const Attempt& attempt, Rank rank) {
  if (attempt.reported.contains(rank)) return true;
  return std::any_of(attempt.early.begin(), attempt.early.end(), [&](const auto& early) {
    const auto& plans = early.second.plans;
    return std::any_of(plans.begin(), plans.end(), [&](const auto& plan) { return plan.rank == rank; });
  });
}

bool Coordinator::has_spoken(const Attempt& attempt, Rank rank) {
  return attempt.waiting.contains(rank) || has_reported(attempt, rank);
}

void Coordinator::heard_of(NodeId node, const std::vector<Rank>& ranks, const std::string& host) {
  if (!host.empty()) host_of_[node] = host;
  std::vector<Rank>& known = ranks_of_[node];
  for (Rank rank : ranks) {
    lost_ranks_.erase(rank);
    const auto place = std::lower_bound(known.begin(), known.end(), rank);
    if (place == known.end() || *place != rank) {
      known.insert(place, rank);
      ++ranks_heard_;
    }
    auto gone = gone_.find(rank);
    if (gone != gone_.end() && gone->second.node != node) gone_.erase(gone);
  }
}

// --- hosts that are lost ---

void Coordinator::lose_ranks_of(TimeNs now, NodeId node, EffectWriter& out) {
  std::string host;
  if (auto named = host_of_.find(node); named != host_of_.end()) {
    host = std::move(named->second);
    host_of_.erase(named);
  }
  auto known = ranks_of_.find(node);
  if (known == ranks_of_.end()) return;
  const std::vector<Rank> ranks = std::move(known->second);
  ranks_heard_ -= ranks.size();
  ranks_of_.erase(known);
  for (Rank rank : ranks) {
    const bool is_elsewhere = std::any_of(ranks_of_.begin(), ranks_of_.end(), [&](const auto& other) {
      return std::binary_search(other.second.begin(), other.second.end(), rank);
    });
    if (!is_elsewhere) lost_ranks_.try_emplace(rank, Lost{now, host});
  }
  await_lost(now, out);
}

void Coordinator::await_all(TimeNs began, EffectWriter& out) {
  if (!plans_ || options().mode == SaveMode::rank_local) return;  // nobody tells it of saves
  timers_.set(began + facts_.times.host_lost_ms * kMillisecond, out,
              [this, began](TimeNs now, EffectWriter& then_out) {
                std::vector<bool> heard(world_size());
                for (const auto& [node, ranks] : ranks_of_) {
                  for (Rank rank : ranks) {
                    if (rank < heard.size()) heard[rank] = true;
                  }
                }
                for (Rank rank = 0; rank < heard.size(); ++rank) {
                  if (!heard[rank]) lost_ranks_.try_emplace(rank, Lost{began, ""});
                }
                abort_lost(now, then_out);
              });
}

void Coordinator::await_lost(TimeNs now, EffectWriter& out) {
  if (lost_timer_ != 0) return;
  const TimeNs patience = facts_.times.host_lost_ms * kMillisecond;
  std::optional<TimeNs> first;
  for (const auto& [rank, lost] : lost_ranks_) {
    const TimeNs until = lost.since + patience;
    if (until > now && (!first || until < *first)) first = until;
  }
  if (!first) return;
  lost_timer_ = timers_.set(*first, out, [this](TimeNs then_now, EffectWriter& then_out) {
    lost_timer_ = 0;
    abort_lost(then_now, then_out);
    await_lost(then_now, then_out);
  });
}

void Coordinator::abort_lost(TimeNs now, EffectWriter& out) {
  for (const AttemptKey& key : open_keys()) {
    if (auto cause = never_comes_back(now, attempts_.at(key))) abort(key, *cause, out);
  }
}

std::optional<std::string> Coordinator::never_comes_back(TimeNs now, const Attempt& attempt) const {
  if (attempt.phase == Phase::publishing) return std::nullopt;
  const TimeNs patience = facts_.times.host_lost_ms * kMillisecond;
  const auto is_awaited = [&](Rank rank, const Lost& lost, TimeNs by) {
    return (world_size() == 0 || rank < world_size()) && lost.since + patience <= by &&
           !has_reported(attempt, rank);
  };
  if (std::none_of(lost_ranks_.begin(), lost_ranks_.end(),
                   [&](const auto& lost) { return is_awaited(lost.first, lost.second, now); })) {
    return std::nullopt;
  }
  std::set<std::string> hosts;
  std::vector<Rank> of_hosts, of_nobody;
  for (const auto& [rank, lost] : lost_ranks_) {
    if (!is_awaited(rank, lost, now + kOneLoss)) continue;
    if (!lost.host.empty()) hosts.insert(lost.host);
    (lost.host.empty() ? of_nobody : of_hosts).push_back(rank);
  }
  const std::string span = human_seconds(facts_.times.host_lost_ms / 1e3);
  if (hosts.empty()) return name_ranks(of_nobody) + ": no node has spoken for them within " + span;
  const bool is_one = hosts.size() == 1;
  return fmt::format("{} ({}) {} lost: neither {} came back within {}", name_hosts(hosts),
                     name_ranks(of_hosts), is_one ? "is" : "are",
                     is_one ? "its node nor its trainers" : "their nodes nor their trainers", span);
}

// --- ranks that stage nothing more ---

void Coordinator::on_ranks_gone(TimeNs now, NodeId from, const wire::RanksGone& said, EffectWriter& out) {
  nodes_.insert(from);
  heard_of(from, said.here, said.host);
  const auto staged = std::make_shared<const std::set<AttemptKey>>(said.staged.begin(), said.staged.end());
  std::map<Rank, TimeNs> since;
  for (auto gone = gone_.begin(); gone != gone_.end();) {
    const bool is_theirs = gone->second.node == from;
    if (is_theirs) since[gone->first] = gone->second.since;
    gone = is_theirs ? gone_.erase(gone) : std::next(gone);
  }
  for (const wire::GoneRank& rank : said.ranks) {
    const TimeNs first = since.contains(rank.rank) ? since[rank.rank] : now;
    const Gone& gone = gone_.insert_or_assign(rank.rank, Gone{from, rank.end, first, staged}).first->second;
    for (const AttemptKey& key : open_keys()) {
      auto cause = never_comes(now, key, attempts_.at(key), rank.rank, gone);
      if (cause) abort(key, *cause, out);
    }
  }
  await_return(now, out);
}

std::optional<std::string> Coordinator::never_comes(TimeNs now, const AttemptKey& key, const Attempt& attempt,
                                                    Rank rank, const Gone& gone) const {
  if (attempt.phase == Phase::publishing || gone.staged->contains(key) || has_spoken(attempt, rank)) {
    return std::nullopt;
  }
  if (world_size() != 0 && rank >= world_size()) return std::nullopt;
  // Its trainers go on with the coordinator that comes in the place of this one.
  if (gone.end.empty() && gone.node == kThisNode && hands_over_) return std::nullopt;
  const bool may_return =
      gone.end.empty() && !stopping_ && now < gone.since + facts_.times.drain_patience_ms * kMillisecond;
  if (may_return) return std::nullopt;
  return "rank " + std::to_string(rank) + ": " +
         (gone.end.empty() ? "the node of its host is stopping, and it has not staged this save"
                           : "its trainer ended before it had staged this save: " + gone.end);
}

void Coordinator::look_for_gone(TimeNs now, const AttemptKey& key, EffectWriter& out) {
  auto found = attempts_.find(key);
  if (found == attempts_.end() || std::exchange(found->second.looked_for_gone, true)) return;
  for (const auto& [rank, gone] : gone_) {
    if (auto cause = never_comes(now, key, found->second, rank, gone)) return abort(key, *cause, out);
  }
  if (auto cause = never_comes_back(now, found->second)) abort(key, *cause, out);
}

void Coordinator::look_for_all_gone(TimeNs now, EffectWriter& out) {
  for (const AttemptKey& key : open_keys()) {
    attempts_.at(key).looked_for_gone = false;
    look_for_gone(now, key, out);
  }
}

void Coordinator::await_return(TimeNs now, EffectWriter& out) {
  if (return_timer_ != 0 || stopping_) return;
  const TimeNs patience = facts_.times.drain_patience_ms * kMillisecond;
  std::optional<TimeNs> first;
  for (const auto& [rank, gone] : gone_) {
    if (!gone.end.empty() || gone.since + patience <= now) continue;
    if (!first || gone.since + patience < *first) first = gone.since + patience;
  }
  if (!first) return;
  return_timer_ = timers_.set(*first, out, [this](TimeNs then_now, EffectWriter& then_out) {
    return_timer_ = 0;
    look_for_all_gone(then_now, then_out);
    await_return(then_now, then_out);
  });
}

// --- draining ---

bool Coordinator::is_hopeless(const Attempt& attempt) const {
  if (attempt.phase == Phase::publishing) return false;
  if (world_size() == 0) return true;
  // What this host staged is decided by the time of Drain.
  const bool alone = nodes_.empty() || (nodes_.size() == 1 && nodes_.contains(kThisNode));
  if (draining_ && alone) return true;
  // A node whose ranks are not known may be that of a lost rank.
  const bool all_known =
      std::all_of(nodes_.begin(), nodes_.end(), [&](NodeId node) { return ranks_of_.contains(node); });
  return all_known && std::any_of(lost_ranks_.begin(), lost_ranks_.end(), [&](const auto& lost) {
           const Rank rank = lost.first;
           auto waiting = attempt.waiting.find(rank);
           const bool has_staged = waiting == attempt.waiting.end() || waiting->second.has_staged;
           return rank < world_size() && !(has_spoken(attempt, rank) && has_staged);
         });
}

void Coordinator::consider_drain(TimeNs now, EffectWriter& out) {
  if (draining_ && attempts_.empty() && telling_ == 0) {
    draining_ = false;
    timers_.cancel(&drain_timer_, out);
    return out.drained();
  }
  if (hands_over_) {
    if (draining_) hand_over(now, out);
    return;
  }
  const TimeNs patience = facts_.times.drain_patience_ms * kMillisecond;
  std::erase_if(hopeless_since_, [&](const auto& each) { return !attempts_.contains(each.first); });
  std::optional<TimeNs> first;
  for (const AttemptKey& key : open_keys()) {
    const Attempt& attempt = attempts_.at(key);
    if (!is_hopeless(attempt)) {
      hopeless_since_.erase(key);
      continue;
    }
    const TimeNs until = hopeless_since_.try_emplace(key, now).first->second + patience;
    if (until <= now) {
      abort(key, what_is_missing(attempt) + " before the coordinator was told to stop", out);
    } else if (!first || until < *first) {
      first = until;
    }
  }
  if (!first || drain_timer_ != 0) return;  // a timer that fires too early sets the next one
  drain_timer_ = timers_.set(*first, out, [this](TimeNs, EffectWriter&) { drain_timer_ = 0; });
}

void Coordinator::hand_over(TimeNs now, EffectWriter& out) {
  const TimeNs until = stopping_since_ + facts_.times.drain_patience_ms * kMillisecond;
  if (now < until) {
    if (drain_timer_ != 0) return;
    drain_timer_ = timers_.set(until, out, [this](TimeNs, EffectWriter&) { drain_timer_ = 0; });
    return;
  }
  for (const AttemptKey& key : open_keys()) {
    if (attempts_.at(key).phase == Phase::publishing) continue;
    out.info(to_string(key) + " is left undecided for the next coordinator");
    close_attempt(key, out);
  }
  if (!attempts_.empty() || telling_ != 0) return;
  draining_ = false;
  out.drained();
}

}  // namespace shoal
