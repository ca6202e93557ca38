// Coordinator: ranks that stage nothing more, and how it comes to an end itself.
//
// A save that waits for a rank whose trainer has ended can never be committed: it is aborted when that is
// known, and not at its deadline.
#include <algorithm>
#include <utility>

#include "actors/coordinator_internal.h"

namespace shoal {

bool Coordinator::has_spoken(const Attempt& attempt, Rank rank) {
  if (attempt.reported.contains(rank) || attempt.waiting.contains(rank)) return true;
  return std::any_of(attempt.early.begin(), attempt.early.end(), [&](const auto& early) {
    const auto& plans = early.second.plans;
    return std::any_of(plans.begin(), plans.end(), [&](const auto& plan) { return plan.rank == rank; });
  });
}

void Coordinator::heard_of(NodeId node, const std::vector<Rank>& ranks) {
  for (Rank rank : ranks) {
    auto gone = gone_.find(rank);
    if (gone != gone_.end() && gone->second.node != node) gone_.erase(gone);
  }
}

void Coordinator::on_ranks_gone(NodeId from, const wire::RanksGone& said, EffectWriter& out) {
  nodes_.insert(from);
  const auto staged = std::make_shared<const std::set<AttemptKey>>(said.staged.begin(), said.staged.end());
  std::erase_if(gone_, [&](const auto& gone) { return gone.second.node == from; });
  for (const wire::GoneRank& rank : said.ranks) {
    const Gone& gone = gone_.insert_or_assign(rank.rank, Gone{from, rank.end, staged}).first->second;
    for (const AttemptKey& key : open_keys()) {
      auto cause = never_comes(key, attempts_.at(key), rank.rank, gone);
      if (cause) abort(key, *cause, out);
    }
  }
}

std::optional<std::string> Coordinator::never_comes(const AttemptKey& key, const Attempt& attempt, Rank rank,
                                                    const Gone& gone) const {
  if (attempt.phase == Phase::publishing || gone.staged->contains(key) || has_spoken(attempt, rank)) {
    return std::nullopt;
  }
  if (plans_ && rank >= plans_->world().roster.world_size()) return std::nullopt;
  return "rank " + std::to_string(rank) + ": its trainer ended before it had staged this save: " + gone.end;
}

void Coordinator::look_for_gone(const AttemptKey& key, EffectWriter& out) {
  auto found = attempts_.find(key);
  if (found == attempts_.end() || std::exchange(found->second.looked_for_gone, true)) return;
  for (const auto& [rank, gone] : gone_) {
    if (auto cause = never_comes(key, found->second, rank, gone)) return abort(key, *cause, out);
  }
}

// --- draining ---

bool Coordinator::may_complete(const Attempt& attempt) const {
  if (attempt.phase == Phase::publishing) return true;
  const bool alone = nodes_.empty() || (nodes_.size() == 1 && nodes_.contains(kThisNode));
  return plans_ && !alone;
}

void Coordinator::consider_drain(TimeNs now, EffectWriter& out) {
  if (attempts_.empty() && telling_ == 0) {
    draining_ = false;
    timers_.cancel(&drain_timer_, out);
    return out.drained();
  }
  if (drain_timer_ != 0) return;
  bool is_hopeless = false;
  for (const auto& [key, attempt] : attempts_) is_hopeless = is_hopeless || !may_complete(attempt);
  if (!is_hopeless) return;
  drain_timer_ = timers_.set(
      now + facts_.times.drain_patience_ms * kMillisecond, out, [this](TimeNs, EffectWriter& then_out) {
        drain_timer_ = 0;
        std::vector<AttemptKey> hopeless;
        for (const auto& [key, attempt] : attempts_) {
          if (!may_complete(attempt)) hopeless.push_back(key);
        }
        for (const AttemptKey& key : hopeless) {
          abort(key, what_is_missing(attempts_.at(key)) + " before the coordinator was told to stop",
                then_out);
        }
      });
}

}  // namespace shoal
