// ShardWriter: ranks that stage nothing more, since their trainer ended, and the drain.
#include "actors/shard_writer_internal.h"

namespace shoal {

// --- ranks that are gone ---

Status ShardWriter::trainer_ended(Rank rank) const {
  auto how = ended_.find(rank);
  return Status(Code::unavailable, "its trainer ended before it had staged this save" +
                                       (how == ended_.end() ? "" : ": " + how->second));
}

void ShardWriter::on_trainer_ended(TimeNs now, const event::TrainerEnded& said, EffectWriter& out) {
  ended_[said.rank] = said.how;
  if (attached_.contains(said.rank)) return;  // what it said last is heard first
  lose_rank(now, said.rank, out);
}

void ShardWriter::lose_rank(TimeNs now, Rank rank, EffectWriter& out) {
  lost_.insert(rank);
  std::vector<AttemptKey> without;
  for (auto& [key, save] : saves_) {
    if (!save.shares.contains(rank)) without.push_back(key);
  }
  for (const AttemptKey& key : without) fail(now, key, rank, trainer_ended(rank), out);
  if (!ended_.contains(rank)) return;
  gone_backoff_.reset();
  say_gone_at(now + facts_.times.join_gather_ms * kMillisecond, out);
}

// Other hosts' saves wait for these ranks, and this node may know nothing of those saves.
void ShardWriter::say_gone(EffectWriter& out) {
  wire::RanksGone said;
  for (const auto& [rank, how] : ended_) said.ranks.push_back({rank, how});
  for (const auto& [key, save] : saves_) said.staged.push_back(key);
  if (said.ranks.empty() && said.staged.empty() && !has_said_gone_) return;
  has_said_gone_ = !said.ranks.empty();
  out.send(kCoordinatorNode, RoleKind::coordinator, std::move(said));
}

void ShardWriter::say_gone_at(TimeNs at, EffectWriter& out) {
  timers_.cancel(&gone_timer_, out);
  gone_timer_ = timers_.set(at, out, [this](TimeNs now, EffectWriter& then_out) {
    gone_timer_ = 0;
    say_gone(then_out);
    if (!ended_.empty()) say_gone_at(now + gone_backoff_.next(), then_out);
  });
}

// --- draining ---

std::optional<ShardWriter::Failure> ShardWriter::hopeless(const Save& save) const {
  if (save.deciding || !save.failure.ok()) return std::nullopt;  // it ends by itself
  if (worlds_.empty() && !save.shares.empty()) {
    return Failure{save.shares.begin()->first,
                   Status(Code::unavailable, "its node was stopped before there was a roster")};
  }
  std::set<Rank> awaited(facts_.expected_ranks.begin(), facts_.expected_ranks.end());
  for (const auto& [rank, client] : attached_) awaited.insert(rank);
  for (Rank rank : awaited) {
    if (save.shares.contains(rank)) continue;
    return Failure{rank, Status(Code::unavailable, "it had not staged this save when its node was stopped")};
  }
  return std::nullopt;
}

void ShardWriter::consider_drain(TimeNs now, EffectWriter& out) {
  if (saves_.empty() && late_.empty() && reading_ == 0) {
    draining_ = false;
    timers_.cancel(&drain_timer_, out);
    timers_.cancel(&gone_timer_, out);
    return out.drained();
  }
  if (drain_timer_ != 0) return;
  bool is_hopeless = coordinator_lost_;
  for (const auto& [key, save] : saves_) is_hopeless = is_hopeless || hopeless(save);
  if (!is_hopeless || saves_.empty()) return;
  drain_timer_ = timers_.set(
      now + facts_.times.drain_patience_ms * kMillisecond, out,
      [this](TimeNs then_now, EffectWriter& then_out) { drain_patience_over(then_now, then_out); });
}

void ShardWriter::drain_patience_over(TimeNs now, EffectWriter& out) {
  drain_timer_ = 0;
  std::map<AttemptKey, std::optional<Failure>> failures;
  for (const auto& [key, save] : saves_) failures.emplace(key, hopeless(save));
  for (const auto& [key, failure] : failures) {
    if (failure) fail(now, key, failure->rank, failure->why, out);
    if (!coordinator_lost_) continue;
    give_up(key, "host " + facts_.host + " was stopped while the coordinator could not be reached", out);
  }
}

}  // namespace shoal
