// Coordinator: stopping, draining, handing over.
//
// A coordinator that is requested to stop aborts the attempts that nobody can complete any more, and decides
// the others. If trainers of its host live, another coordinator replaces it. Then it finishes what it can
// within drain_patience_ms, and leaves the rest undecided.
#include <algorithm>
#include <utility>

#include "actors/coordinator/coordinator.h"

namespace shoal::actors {

// A repeated request changes nothing.
void Coordinator::on_stopping(TimeNs now, const event::Stopping& stopping, EffectWriter& out) {
  const auto trigger = stopping.trainers_live ? ShutdownTrigger::stop_requested_with_trainers
                                              : ShutdownTrigger::stop_requested;
  if (!shutdown_.may(trigger)) return;
  on_shutdown(now, trigger);
  look_for_all_ended(now, out);
}

void Coordinator::on_drain(TimeNs now, const event::Drain& drain, EffectWriter& out) {
  const auto trigger = drain.by_request && drain.trainers_live
                           ? ShutdownTrigger::drain_requested_with_trainers
                           : ShutdownTrigger::drain_requested;
  if (!shutdown_.may(trigger)) return;
  const bool handed_over = shutdown_.hands_over();
  on_shutdown(now, trigger);
  // Trainers of this host have ended since it was requested to stop.
  if (handed_over && !shutdown_.hands_over()) look_for_all_ended(now, out);
}

bool Coordinator::is_hopeless(const Attempt& attempt) const {
  if (!attempt.is_open()) return false;
  if (world_size() == 0) return true;
  // When Drain comes, the saves that this host staged are decided.
  const bool is_only_node = nodes_.empty() || (nodes_.size() == 1 && nodes_.contains(kThisNode));
  if (shutdown_.is_draining() && is_only_node) return true;
  // A node that has not reported its ranks yet may have the lost rank.
  const bool all_known = std::all_of(nodes_.begin(), nodes_.end(),
                                     [&](NodeId node) { return presence_.ranks_of(node) != nullptr; });
  const auto& lost = presence_.lost();
  return all_known && std::any_of(lost.begin(), lost.end(), [&](const auto& each) {
           return each.first < world_size() && !attempt.has_staged(each.first);
         });
}

bool Coordinator::others_continue() const {
  if (!config_.expected_ranks.empty() || presence_.ranks_of(kThisNode) != nullptr) return false;
  const auto& nodes = presence_.ranks_of();
  return std::any_of(nodes.begin(), nodes.end(), [&](const auto& node) {
    return std::any_of(node.second.begin(), node.second.end(), [&](Rank rank) {
      auto gone = presence_.gone().find(rank);
      return gone == presence_.gone().end() || gone->second.may_return;
    });
  });
}

void Coordinator::consider_shutdown(TimeNs now, EffectWriter& out) {
  if (shutdown_.is_draining() && attempts_.empty() && outcomes_to_send_ == 0) {
    if (awaits_lost_hosts(now, out)) return;
    on_shutdown(now, ShutdownTrigger::nothing_in_flight);
    timers_.cancel(&shutdown_timer_, out);
    return out.drained();
  }
  std::optional<TimeNs> first;
  switch (shutdown_.state()) {
    case ShutdownState::running:
    case ShutdownState::drained:
    case ShutdownState::handed_over:
    case ShutdownState::stopping_with_trainers:  // what is undecided is left to the next coordinator
      return;
    case ShutdownState::handing_over:
      return hand_over(now, out);
    case ShutdownState::draining:
      if (others_continue()) {
        const TimeNs until = shutdown_.since() + config_.timeouts.host_lost_ms * kMillisecond;
        if (until <= now) {
          on_shutdown(now, ShutdownTrigger::others_continue);
          return hand_over(now, out);
        }
        first = until;
      }
      break;
    case ShutdownState::stopping:
    case ShutdownState::finishing:
      break;
  }
  const std::optional<TimeNs> next = abort_hopeless(now, out);
  if (next && (!first || *next < *first)) first = next;
  if (first) await_shutdown(*first, out);
}

bool Coordinator::awaits_lost_hosts(TimeNs now, EffectWriter& out) {
  const TimeNs until = shutdown_.since() + config_.timeouts.drain_patience_ms * kMillisecond;
  // A node that ends by itself, idle, does not report the ranks that have ended.
  if (!shutdown_.is_requested() || now >= until) return false;
  const TimeNs host_lost = config_.timeouts.host_lost_ms * kMillisecond;
  for (const auto& [rank, lost] : presence_.lost()) {
    if (!lost.never_came && now < lost.since + host_lost) may_ask_.insert(rank);
  }
  std::erase_if(may_ask_, [&](Rank rank) {
    const auto lost = presence_.lost().find(rank);
    return presence_.gone().contains(rank) ||
           (lost != presence_.lost().end() && now >= lost->second.since + host_lost);
  });
  if (may_ask_.empty()) return false;
  await_shutdown(std::min(until, presence_.next_loss(now).value_or(until)), out);
  return true;
}

std::optional<TimeNs> Coordinator::abort_hopeless(TimeNs now, EffectWriter& out) {
  std::optional<TimeNs> first;
  for (auto& [key, attempt] : attempts_) {
    if (!is_hopeless(attempt)) {
      attempt.hopeless_since.reset();
      continue;
    }
    if (!attempt.hopeless_since) attempt.hopeless_since = now;
    const TimeNs until = *attempt.hopeless_since + config_.timeouts.drain_patience_ms * kMillisecond;
    if (until <= now) {
      abort(attempt, GiveUp::stopping,
            what_is_missing(now, attempt).cause("before the coordinator was stopped"), out);
    } else if (!first || until < *first) {
      first = until;
    }
  }
  return first;
}

void Coordinator::await_shutdown(TimeNs until, EffectWriter& out) {
  if (shutdown_timer_ != 0 && shutdown_at_ <= until) return;  // it sets the next one
  timers_.cancel(&shutdown_timer_, out);
  shutdown_at_ = until;
  // consider_shutdown runs after every event, and so after this one.
  shutdown_timer_ = timers_.set(until, out, [this](TimeNs, EffectWriter&) { shutdown_timer_ = 0; });
}

void Coordinator::hand_over(TimeNs now, EffectWriter& out) {
  const TimeNs until = shutdown_.since() + config_.timeouts.drain_patience_ms * kMillisecond;
  if (now < until) return await_shutdown(until, out);
  for (auto each = attempts_.begin(); each != attempts_.end();) {
    Attempt& attempt = (each++)->second;  // close() destroys it
    if (!attempt.may(AttemptTrigger::handed_over)) continue;
    out.info(to_string(attempt.key()) + " is left undecided for the next coordinator");
    close(attempt, AttemptTrigger::handed_over, out);
  }
  if (!attempts_.empty() || outcomes_to_send_ != 0) return;
  on_shutdown(now, ShutdownTrigger::nothing_in_flight);
  out.drained();
}

}  // namespace shoal::actors
