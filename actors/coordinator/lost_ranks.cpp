// Coordinator: ranks that stage nothing more, hosts that are lost, and the drain.
//
// A save that lacks such a rank can never be committed. The coordinator aborts it as soon as it knows, and
// does not wait for the deadline.
//
// - A trainer that has ended does not come back.
// - A node that stops while its trainers live is replaced by another one, to which the clients offer their
//   saves. The coordinator waits host_lost_ms for it, as for a node whose session ends without notice.
// - A node that stops without trainers gets drain_patience_ms, unless the coordinator stops too.
//
// A coordinator that is requested to stop while trainers of its host live is replaced by another one. It
// finishes what it can within drain_patience_ms, and leaves the rest undecided.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "actors/coordinator/coordinator.h"
#include "base/rank_names.h"

namespace shoal::actors {

namespace {

// The hosts of a rack fail at the same moment. The coordinator may notice their losses this far apart.
constexpr TimeNs kOneLoss = 3'000 * kMillisecond;

std::string name_hosts(const std::set<std::string>& hosts) {
  const size_t named = std::min(hosts.size(), base::kRanksNamed);
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
  if (!plans_ || options().mode == SaveMode::rank_local) return;  // nodes do not report rank-local saves
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
  if (rank_local_) tell_lost(now, out);
  for (const AttemptKey& key : open_keys()) {
    if (auto cause = never_comes_back(now, attempts_.at(key))) abort(key, GiveUp::host_lost, *cause, out);
  }
}

std::vector<Rank> Coordinator::lost_by(TimeNs by) const {
  const TimeNs patience = facts_.times.host_lost_ms * kMillisecond;
  std::vector<Rank> ranks;
  for (const auto& [rank, lost] : lost_ranks_) {
    if (world_size() != 0 && rank >= world_size()) break;
    if (lost.since + patience <= by) ranks.push_back(rank);
  }
  return ranks;
}

std::optional<std::string> Coordinator::never_comes_back(TimeNs now, const Attempt& attempt) const {
  if (attempt.phase == Phase::publishing) return std::nullopt;
  const auto reported = [&](Rank rank) { return has_reported(attempt, rank); };
  const std::vector<Rank> lost = lost_by(now);
  if (std::all_of(lost.begin(), lost.end(), reported)) return std::nullopt;
  std::vector<Rank> together = lost_by(now + kOneLoss);
  std::erase_if(together, reported);
  return why_lost(together);
}

std::string Coordinator::why_lost(const std::vector<Rank>& ranks) const {
  std::set<std::string> hosts;
  std::vector<Rank> of_hosts, unnamed;
  std::map<uint32_t, std::vector<Rank>> of_others;  // by the number of their host in the roster
  for (Rank rank : ranks) {
    const std::string& host = lost_ranks_.at(rank).host;
    if (!host.empty()) {
      hosts.insert(host);
      of_hosts.push_back(rank);
    } else if (plans_) {
      of_others[plans_->world().roster.host_of(rank)].push_back(rank);
    } else {
      unnamed.push_back(rank);
    }
  }
  if (!unnamed.empty()) of_others[0] = std::move(unnamed);
  const std::string span = human_seconds(facts_.times.host_lost_ms / 1e3);
  std::vector<std::string> causes;
  if (!hosts.empty()) {
    const bool is_one = hosts.size() == 1;
    causes.push_back(fmt::format("{} ({}) {} lost: neither {} came back within {}", name_hosts(hosts),
                                 base::name_ranks(of_hosts), is_one ? "is" : "are",
                                 is_one ? "its node nor its trainers" : "their nodes nor their trainers",
                                 span));
  }
  if (!of_others.empty()) {
    std::vector<std::string> named;
    for (const auto& [number, theirs] : of_others) {
      if (named.size() == base::kRanksNamed) break;
      named.push_back("the host of " + base::name_ranks(theirs));
    }
    const size_t left_out = of_others.size() - named.size();
    if (left_out != 0) named.push_back(fmt::format("{} more hosts", left_out));
    causes.push_back(fmt::format("{} {} lost: no node has spoken for {} within {}", fmt::join(named, ", "),
                                 of_others.size() == 1 ? "is" : "are", of_others.size() == 1 ? "it" : "them",
                                 span));
  }
  return fmt::format("{}", fmt::join(causes, "; "));
}

void Coordinator::tell_lost(TimeNs now, EffectWriter& out) {
  std::vector<Rank> lost = lost_by(now);
  if (!lost.empty()) lost = lost_by(now + kOneLoss);
  if (lost == told_lost_) return;
  told_lost_ = lost;
  out.tell(RoleKind::shard_writer, event::RanksLost{lost, lost.empty() ? "" : why_lost(lost)});
}

void Coordinator::name_own_ranks(NodeId to, EffectWriter& out) {
  wire::RanksGone said;
  said.host = facts_.host;
  said.rank_local = true;
  if (auto own = ranks_of_.find(kThisNode); own != ranks_of_.end()) said.here = own->second;
  if (!said.here.empty()) out.send(to, RoleKind::shard_writer, std::move(said));
}

// --- ranks that stage nothing more ---

void Coordinator::on_ranks_gone(TimeNs now, NodeId from, const wire::RanksGone& said, EffectWriter& out) {
  nodes_.insert(from);
  const auto own_before = ranks_of_.find(kThisNode);
  const size_t own_ranks = own_before == ranks_of_.end() ? 0 : own_before->second.size();
  heard_of(from, said.here, said.host);
  if (said.rank_local) {
    rank_local_ = true;
    tell_lost(now, out);
    if (from != kThisNode) {
      name_own_ranks(from, out);
    } else if (ranks_of_[kThisNode].size() != own_ranks) {
      for (NodeId node : nodes_) {
        if (node != kThisNode) name_own_ranks(node, out);
      }
    }
  }
  const auto staged = std::make_shared<const std::set<AttemptKey>>(said.staged.begin(), said.staged.end());
  std::map<Rank, TimeNs> since;
  for (auto gone = gone_.begin(); gone != gone_.end();) {
    const bool is_theirs = gone->second.node == from;
    if (is_theirs) since[gone->first] = gone->second.since;
    gone = is_theirs ? gone_.erase(gone) : std::next(gone);
  }
  for (const wire::GoneRank& rank : said.ranks) {
    const TimeNs first = since.contains(rank.rank) ? since[rank.rank] : now;
    const Gone& gone =
        gone_.insert_or_assign(rank.rank, Gone{from, rank.end, first, said.may_return, staged}).first->second;
    for (const AttemptKey& key : open_keys()) {
      auto cause = never_comes(now, key, attempts_.at(key), rank.rank, gone);
      if (cause) abort(key, GiveUp::rank_gone, *cause, out);
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
  // its trainers continue with the coordinator that replaces this one
  if (gone.end.empty() && gone.node == kThisNode && hands_over_) return std::nullopt;
  const bool may_return = gone.end.empty() && (!stopping_ || gone.may_return);
  if (may_return && now < gone.since + return_patience(gone)) return std::nullopt;
  return "rank " + std::to_string(rank) + ": " +
         (gone.end.empty() ? "the node of its host is stopping, and it has not staged this save"
                           : "its trainer ended before it had staged this save: " + gone.end);
}

void Coordinator::look_for_gone(TimeNs now, const AttemptKey& key, EffectWriter& out) {
  auto found = attempts_.find(key);
  if (found == attempts_.end() || std::exchange(found->second.looked_for_gone, true)) return;
  for (const auto& [rank, gone] : gone_) {
    if (auto cause = never_comes(now, key, found->second, rank, gone)) {
      return abort(key, GiveUp::rank_gone, *cause, out);
    }
  }
  if (auto cause = never_comes_back(now, found->second)) abort(key, GiveUp::host_lost, *cause, out);
}

void Coordinator::look_for_all_gone(TimeNs now, EffectWriter& out) {
  for (const AttemptKey& key : open_keys()) {
    attempts_.at(key).looked_for_gone = false;
    look_for_gone(now, key, out);
  }
  timers_.cancel(&return_timer_, out);  // patience is shorter while this node stops
  await_return(now, out);
}

// A node whose trainers live is replaced like one that was killed. If the trainers of this host have ended,
// the whole job may be ending.
TimeNs Coordinator::return_patience(const Gone& gone) const {
  const bool waits_longer = gone.may_return && (!stopping_ || hands_over_);
  return (waits_longer ? facts_.times.host_lost_ms : facts_.times.drain_patience_ms) * kMillisecond;
}

void Coordinator::await_return(TimeNs now, EffectWriter& out) {
  if (return_timer_ != 0) return;
  std::optional<TimeNs> first;
  for (const auto& [rank, gone] : gone_) {
    const TimeNs until = gone.since + return_patience(gone);
    if (!gone.end.empty() || until <= now || (stopping_ && !gone.may_return)) continue;
    if (!first || until < *first) first = until;
  }
  if (!first) return;
  return_timer_ = timers_.set(*first, out, [this](TimeNs then_now, EffectWriter& then_out) {
    return_timer_ = 0;
    look_for_all_gone(then_now, then_out);
  });
}

// --- draining ---

bool Coordinator::is_hopeless(const Attempt& attempt) const {
  if (attempt.phase == Phase::publishing) return false;
  if (world_size() == 0) return true;
  // When Drain comes, the saves that this host staged are decided.
  const bool alone = nodes_.empty() || (nodes_.size() == 1 && nodes_.contains(kThisNode));
  if (draining_ && alone) return true;
  // A node that has not reported its ranks yet may have the lost rank.
  const bool all_known =
      std::all_of(nodes_.begin(), nodes_.end(), [&](NodeId node) { return ranks_of_.contains(node); });
  return all_known && std::any_of(lost_ranks_.begin(), lost_ranks_.end(), [&](const auto& lost) {
           const Rank rank = lost.first;
           auto waiting = attempt.waiting.find(rank);
           const bool has_staged = waiting == attempt.waiting.end() || waiting->second.has_staged;
           return rank < world_size() && !(has_spoken(attempt, rank) && has_staged);
         });
}

bool Coordinator::others_go_on() const {
  if (!stopping_ || !facts_.expected_ranks.empty() || ranks_of_.contains(kThisNode)) return false;
  return std::any_of(ranks_of_.begin(), ranks_of_.end(), [&](const auto& node) {
    return std::any_of(node.second.begin(), node.second.end(), [&](Rank rank) {
      auto gone = gone_.find(rank);
      return gone == gone_.end() || gone->second.may_return;
    });
  });
}

void Coordinator::consider_drain(TimeNs now, EffectWriter& out) {
  if (draining_ && attempts_.empty() && telling_ == 0) {
    draining_ = false;
    timers_.cancel(&drain_timer_, out);
    return out.drained();
  }
  std::optional<TimeNs> first;
  if (draining_ && !hands_over_ && others_go_on()) {
    const TimeNs until = stopping_since_ + facts_.times.host_lost_ms * kMillisecond;
    if (until <= now) {
      hands_over_ = true;
    } else {
      first = until;
    }
  }
  if (hands_over_) {
    if (draining_) hand_over(now, out);
    return;
  }
  const TimeNs patience = facts_.times.drain_patience_ms * kMillisecond;
  std::erase_if(hopeless_since_, [&](const auto& each) { return !attempts_.contains(each.first); });
  for (const AttemptKey& key : open_keys()) {
    const Attempt& attempt = attempts_.at(key);
    if (!is_hopeless(attempt)) {
      hopeless_since_.erase(key);
      continue;
    }
    const TimeNs until = hopeless_since_.try_emplace(key, now).first->second + patience;
    if (until <= now) {
      abort(key, GiveUp::stopping, what_is_missing(attempt) + " before the coordinator was told to stop",
            out);
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

}  // namespace shoal::actors
