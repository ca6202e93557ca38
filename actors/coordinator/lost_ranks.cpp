// Coordinator: ranks that stage nothing more, and hosts that are lost.
//
// A save that lacks such a rank can never be committed. The coordinator aborts it as soon as it knows, and
// does not wait for the deadline.
//
// - A trainer that has ended does not come back.
// - A node that stops while its trainers live is replaced by another one, to which the clients offer their
//   saves. The coordinator waits host_lost_ms for it, as for a node whose session ends without notice.
// - A node that stops without trainers gets drain_patience_ms, unless the coordinator stops too.
#include <algorithm>
#include <utility>

#include "actors/coordinator/coordinator.h"
#include "base/rare_path.h"

namespace shoal::actors {

// --- hosts that are lost ---

void Coordinator::await_all(TimeNs began, EffectWriter& out) {
  // Nodes do not report rank-local saves.
  if (!rosters_.newest() || options().mode == SaveMode::rank_local) return;
  timers_.set(began + config_.timeouts.host_lost_ms * kMillisecond, out,
              [this, began](TimeNs now, EffectWriter& then_out) {
                presence_.lose_unreported(began, world_size());
                abort_lost(now, then_out);
              });
}

void Coordinator::await_lost(TimeNs now, EffectWriter& out) {
  if (lost_timer_ != 0) return;
  const std::optional<TimeNs> first = presence_.next_loss(now);
  if (!first) return;
  lost_timer_ = timers_.set(*first, out, [this](TimeNs then_now, EffectWriter& then_out) {
    lost_timer_ = 0;
    abort_lost(then_now, then_out);
    if (presence_.next_loss(then_now)) base::rare_path<"coordinator: another host was lost meanwhile">();
    await_lost(then_now, then_out);
  });
}

void Coordinator::abort_lost(TimeNs now, EffectWriter& out) {
  if (is_superseded()) return;  // the nodes have left for the later coordinator
  if (rank_local_) send_lost(now, out);
  for (auto& [key, attempt] : attempts_) {
    const auto cause = why_host_never_reports(now, attempt);
    if (!cause) continue;
    base::rare_path<"coordinator: aborts a save because a host is lost">();
    abort(attempt, GiveUp::host_lost, *cause, out);
  }
}

std::optional<std::string> Coordinator::why_host_never_reports(TimeNs now, const Attempt& attempt) const {
  if (!attempt.is_open()) return std::nullopt;
  const auto reported = [&](Rank rank) { return attempt.has_reported(rank); };
  const std::vector<Rank> lost = presence_.lost_by(now, world_size());
  if (std::all_of(lost.begin(), lost.end(), reported)) return std::nullopt;
  std::vector<Rank> together = presence_.lost_by(now + kOneLoss, world_size());
  std::erase_if(together, reported);
  return why_lost(together);
}

std::string Coordinator::why_lost(const std::vector<Rank>& ranks) const {
  const auto& roster = rosters_.newest();
  return presence_.why_lost(ranks, roster ? &roster->world().roster : nullptr);
}

void Coordinator::send_lost(TimeNs now, EffectWriter& out) {
  if (is_superseded()) return;
  event::RanksLost lost;
  lost.ranks = presence_.lost_by(now, world_size());
  if (!lost.ranks.empty()) {
    lost.ranks = presence_.lost_by(now + kOneLoss, world_size());
    lost.cause = why_lost(lost.ranks);
  }
  for (const auto& [rank, gone] : presence_.gone()) {
    if (!gone.end.empty()) lost.ended.push_back({rank, why_ended(rank, gone), *gone.staged});
  }
  if (lost == lost_sent_) return;
  lost_sent_ = lost;
  out.to_role(RoleKind::shard_writer, std::move(lost));
}

// If the last rank here has ended, no save is open here, and the nodes of other hosts must know.
void Coordinator::send_own_ranks(NodeId to, EffectWriter& out) {
  wire::RanksEnded message;
  message.host = config_.host;
  message.rank_local = true;
  if (const std::vector<Rank>* own = presence_.ranks_of(kThisNode)) message.here = *own;
  for (const auto& [rank, gone] : presence_.gone()) {
    if (gone.node != kThisNode || gone.end.empty()) continue;
    message.ranks.push_back({rank, gone.end});
    message.staged.assign(gone.staged->begin(), gone.staged->end());
  }
  const bool has_ranks = !message.here.empty() || !message.ranks.empty();
  if (has_ranks) out.send(to, RoleKind::shard_writer, std::move(message));
}

// --- ranks that stage nothing more ---

void Coordinator::on_ranks_ended(TimeNs now, NodeId from, const wire::RanksEnded& message,
                                 EffectWriter& out) {
  nodes_.insert(from);
  const auto own_ranks = [this] {  // how many are here, and which of them have ended
    const std::vector<Rank>* own = presence_.ranks_of(kThisNode);
    std::vector<Rank> ended;
    for (const auto& [rank, gone] : presence_.gone()) {
      if (gone.node == kThisNode && !gone.end.empty()) ended.push_back(rank);
    }
    return std::pair(own == nullptr ? 0 : own->size(), ended);
  };
  const auto own_before = own_ranks();
  presence_.reported(from, message.here, message.host);
  presence_.expected(from, message.expected, message.host);
  presence_.take(now, from, message);
  if (message.rank_local) {
    if (!std::exchange(rank_local_, true)) leave_to_nodes(out);
    if (rank_local_host_.empty() && !message.here.empty()) rank_local_host_ = message.host;
    refuse_mixed_modes(out);
    send_lost(now, out);
    if (from != kThisNode) {
      send_own_ranks(from, out);
    } else if (own_ranks() != own_before) {
      for (NodeId node : nodes_) {
        if (node != kThisNode) send_own_ranks(node, out);
      }
    }
  }
  for (const wire::EndedRank& rank : message.ranks) {
    const auto gone = presence_.gone().find(rank.rank);
    if (gone == presence_.gone().end() || gone->second.node != from) continue;  // it is on another host too
    for (auto& [key, attempt] : attempts_) {
      auto cause = why_rank_never_stages(now, attempt, rank.rank, gone->second);
      if (!cause) continue;
      base::rare_path<"coordinator: aborts a save because a rank has ended">();
      abort(attempt, GiveUp::rank_ended, *cause, out);
    }
  }
  await_return(now, out);
}

std::optional<std::string> Coordinator::why_rank_never_stages(TimeNs now, const Attempt& attempt, Rank rank,
                                                              const RankPresence::Gone& gone) const {
  if (!attempt.is_open() || gone.staged->contains(attempt.key()) || attempt.has_staged(rank)) {
    return std::nullopt;
  }
  if (world_size() != 0 && rank >= world_size()) return std::nullopt;
  const bool node_stops = gone.end.empty();
  // Its trainers continue with the coordinator that replaces this one.
  if (node_stops && gone.node == kThisNode && shutdown_.hands_over()) return std::nullopt;
  const bool may_return = node_stops && (!shutdown_.is_requested() || gone.may_return);
  if (may_return && now < gone.since + return_patience(gone)) return std::nullopt;
  return why_ended(rank, gone);
}

std::string Coordinator::why_ended(Rank rank, const RankPresence::Gone& gone) const {
  return presence_.name_ranks({rank}) + ": " +
         (gone.end.empty() ? "the node of its host is stopping, and the rank has not staged this save"
                           : "its trainer ended before it staged this save: " + gone.end);
}

void Coordinator::look_for_ended(TimeNs now, Attempt& attempt, EffectWriter& out) {
  for (const auto& [rank, gone] : presence_.gone()) {
    if (auto cause = why_rank_never_stages(now, attempt, rank, gone)) {
      return abort(attempt, GiveUp::rank_ended, *cause, out);
    }
  }
  if (auto cause = why_host_never_reports(now, attempt)) abort(attempt, GiveUp::host_lost, *cause, out);
}

void Coordinator::look_for_all_ended(TimeNs now, EffectWriter& out) {
  for (auto& [key, attempt] : attempts_) look_for_ended(now, attempt, out);
  timers_.cancel(&return_timer_, out);  // patience is shorter while this node stops
  await_return(now, out);
}

// A node whose trainers live is replaced like one that was killed. If the trainers of this host have ended,
// the whole job may be ending.
TimeNs Coordinator::return_patience(const RankPresence::Gone& gone) const {
  const bool waits_longer = gone.may_return && (!shutdown_.is_requested() || shutdown_.hands_over());
  return (waits_longer ? config_.timeouts.host_lost_ms : config_.timeouts.drain_patience_ms) * kMillisecond;
}

void Coordinator::await_return(TimeNs now, EffectWriter& out) {
  std::optional<TimeNs> first;
  for (const auto& [rank, gone] : presence_.gone()) {
    const TimeNs until = gone.since + return_patience(gone);
    if (!gone.end.empty() || until <= now || (shutdown_.is_requested() && !gone.may_return)) continue;
    if (!first || until < *first) first = until;
  }
  if (!first || (return_timer_ != 0 && return_at_ <= *first)) return;
  timers_.cancel(&return_timer_, out);
  return_at_ = *first;
  return_timer_ = timers_.set(*first, out, [this](TimeNs then_now, EffectWriter& then_out) {
    return_timer_ = 0;
    base::rare_path<"coordinator: ranks of a stopped node have not returned in time">();
    look_for_all_ended(then_now, then_out);
  });
}

}  // namespace shoal::actors
