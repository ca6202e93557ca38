// ShardWriter: the drain, and ranks that stage nothing more because their trainer has ended or the node
// stops.
#include <algorithm>
#include <utility>

#include "actors/shard_writer/shard_writer.h"
#include "base/rare_path.h"

namespace shoal::actors {

namespace {

constexpr const char* kLeftForNextRun = "it has left, and another run starts on its host";
constexpr const char* kLeftNode =
    "it closed its connection without notice, and no trainer was left on its host";

}  // namespace

// --- ranks that are gone ---

Status ShardWriter::never_stages(Rank rank, Departure how) const {
  const auto text = [&]() -> std::string {
    switch (how) {
      case Departure::closed:
        return "its trainer closed its Checkpointer before it staged this save";
      case Departure::disconnected:
        return "its connection to the node ended before it staged this save";
      case Departure::ended:
        return "its trainer ended before it staged this save: " + ended_.at(rank);
    }
    return {};
  };
  return Status(Code::unavailable, text());
}

void ShardWriter::on_trainer_ended(TimeNs now, const event::TrainerEnded& message, EffectWriter& out) {
  ended_[message.rank] = message.how;
  if (attached_.contains(message.rank)) return;  // first the node handles the last messages of this trainer
  lose_rank(now, message.rank, Departure::ended, out);
}

// A node that a launcher started rejects ranks of other hosts.
bool ShardWriter::saves_elsewhere(Rank rank) const {
  return config_.expected_ranks.empty() && has_seen_commit_ && !staged_here_.contains(rank);
}

bool ShardWriter::awaits_attached(const NodeSave& save) const {
  return std::ranges::any_of(attached_, [&](const auto& each) {
    return !save.ranks.contains(each.first) && !saves_elsewhere(each.first);
  });
}

void ShardWriter::lose_rank(TimeNs now, Rank rank, Departure how, EffectWriter& out) {
  if (ended_.contains(rank)) how = Departure::ended;
  if (saves_elsewhere(rank)) {
    base::rare_path<"shard writer: a second process of a rank of another host has ended">();
  } else {
    lost_[rank] = how;
    std::vector<AttemptKey> without;
    for (auto& [key, save] : saves_) {
      if (!save.has_staged(rank)) without.push_back(key);
    }
    for (const AttemptKey& key : without) fail(now, key, rank, never_stages(rank, how), out);
  }
  if (!ended_.contains(rank)) return;
  ended_backoff_.reset();
  send_ended_at(now + config_.timeouts.join_gather_ms * kMillisecond, out);
}

void ShardWriter::on_next_run(TimeNs now, EffectWriter& out) {
  next_run_starts_ = true;
  for (auto& [rank, awaited] : std::exchange(awaited_, {})) {
    timers_.cancel(&awaited.until, out);
    base::rare_path<"shard writer: a trainer has left and the next run starts">();
    on_trainer_ended(now, {rank, kLeftForNextRun}, out);
  }
}

void ShardWriter::await_return(TimeNs now, Rank rank, Departure how, EffectWriter& out) {
  if (next_run_starts_) return on_trainer_ended(now, {rank, kLeftForNextRun}, out);
  Awaited& awaited = awaited_[rank];
  timers_.cancel(&awaited.until, out);
  awaited.how = how;
  awaited.until = timers_.set(
      now + config_.timeouts.host_lost_ms * kMillisecond, out,
      [this, rank, how](TimeNs then_now, EffectWriter& then_out) {
        awaited_.erase(rank);
        if (ended_.contains(rank)) return;  // the launcher has reported more
        if (how == Departure::closed) {
          base::rare_path<"shard writer: a trainer closed its Checkpointer and opened no other one">();
          return lose_rank(then_now, rank, how, then_out);
        }
        base::rare_path<"shard writer: a trainer vanished and did not come back">();
        on_trainer_ended(then_now,
                         {rank, "it closed its connection without notice, and did not come back within " +
                                    human_seconds(config_.timeouts.host_lost_ms / 1e3)},
                         then_out);
      });
}

// Other hosts may wait for these ranks in saves that this node does not know.
void ShardWriter::send_ended(EffectWriter& out) {
  std::map<Rank, std::string> gone;
  if (drain_.have_ranks_ended()) {
    for (Rank rank : config_.expected_ranks) gone[rank];
    for (const auto& [rank, client] : attached_) gone[rank];
    for (const auto& [rank, how] : lost_) gone[rank];
    for (const auto& [rank, awaited] : awaited_) gone[rank];
  }
  for (const auto& [rank, how] : ended_) gone[rank] = how;
  wire::RanksEnded message;
  for (const auto& [rank, how] : gone) message.ranks.push_back({rank, how});
  for (const auto& [key, save] : saves_) message.staged.push_back(key);
  message.host = config_.host;
  if (!drain_.have_ranks_ended()) {
    for (const auto& [rank, client] : attached_) {
      if (!saves_elsewhere(rank)) message.here.push_back(rank);
    }
    for (Rank rank : config_.expected_ranks) {
      if (!attached_.contains(rank) && !gone.contains(rank)) message.expected.push_back(rank);
    }
  }
  message.may_return = drain_.have_ranks_ended() && !attached_.empty();
  if (rank_local_) {  // this node decides the saves that it knows; other hosts may save without these ranks
    std::erase_if(message.ranks, [](const wire::EndedRank& rank) { return rank.end.empty(); });
    if (message.ranks.empty()) message.staged.clear();
    message.rank_local = true;
  }
  if (message.ranks.empty() && message.staged.empty() && message.here.empty() && message.expected.empty() &&
      !has_sent_ended_) {
    return;
  }
  has_sent_ended_ = !message.ranks.empty();
  out.send(kCoordinatorNode, RoleKind::coordinator, std::move(message));
}

void ShardWriter::report_ranks(TimeNs first, EffectWriter& out) {
  ranks_ended_left_ = kRanksEndedRepeats;
  send_ended_at(first, out);
}

void ShardWriter::send_ended_at(TimeNs at, EffectWriter& out) {
  timers_.cancel(&ended_timer_, out);
  ended_timer_ = timers_.set(at, out, [this](TimeNs now, EffectWriter& then_out) {
    ended_timer_ = 0;
    send_ended(then_out);
    if (ranks_ended_left_ > 0) --ranks_ended_left_;
    if (drain_.have_ranks_ended() || !ended_.empty() || ranks_ended_left_ > 0) {
      send_ended_at(now + ended_backoff_.next(), then_out);
    }
  });
}

// --- draining ---

// While the node waits, trainers may still stage saves that other ranks have staged.
void ShardWriter::begin_drain(TimeNs now, const event::Drain& drain, EffectWriter& out) {
  drain_.on(NodeDrainTrigger::requested);
  is_node_stopping_ = drain.by_request;
  if (!drain.by_request || patience_timer_ != 0) return;
  patience_timer_ = timers_.set(now + config_.timeouts.drain_patience_ms * kMillisecond, out,
                                [this](TimeNs then_now, EffectWriter& then_out) {
                                  patience_timer_ = 0;
                                  // end_drain sends RanksEnded when nothing is written here any more.
                                  if (hands_over()) {
                                    base::rare_path<"shard writer: hands its saves over to the next node">();
                                    return drain_.on(NodeDrainTrigger::patience_over_with_trainers);
                                  }
                                  drain_.on(NodeDrainTrigger::patience_over);
                                  ended_backoff_.reset();
                                  send_ended_at(then_now, then_out);
                                });
}

bool ShardWriter::hands_over() const {
  return is_node_stopping_ && !attached_.empty();
}

bool ShardWriter::is_writing() const {
  if (!late_.empty() || reading_ != 0) return true;
  for (const auto& [key, save] : saves_) {
    for (const auto& [rank, rank_save] : save.ranks) {
      if (rank_save.files_writing != 0) return true;
    }
    if (rank_local_ && save.has_unpublished()) return true;
  }
  return false;
}

void ShardWriter::end_drain(EffectWriter& out) {
  drain_.on(is_node_stopping_ ? NodeDrainTrigger::finished_to_stop : NodeDrainTrigger::finished);
  for (TimerId* timer : {&drain_timer_, &patience_timer_, &ended_timer_}) timers_.cancel(timer, out);
  for (auto& [rank, awaited] : awaited_) {
    timers_.cancel(&awaited.until, out);
    if (is_node_stopping_ || awaited.how != Departure::disconnected || ended_.contains(rank)) continue;
    if (saves_elsewhere(rank)) continue;
    base::rare_path<"shard writer: ends while a trainer that vanished might come back">();
    ended_.try_emplace(rank, kLeftNode);
  }
  awaited_.clear();
  if (is_node_stopping_ || !ended_.empty()) send_ended(out);
  out.drained();
}

std::optional<ShardWriter::Failure> ShardWriter::hopeless(const NodeSave& save) const {
  if (save.is_deciding() || save.has_failed()) return std::nullopt;  // it ends by itself
  if (hands_over()) return std::nullopt;                             // the next node continues it
  if (!rank_local_ && !is_collective() && worlds_.empty() && !save.ranks.empty()) {
    return Failure{save.ranks.begin()->first,
                   Status(Code::unavailable, "its node was stopped before there was a roster")};
  }
  std::set<Rank> awaited(config_.expected_ranks.begin(), config_.expected_ranks.end());
  for (const auto& [rank, client] : attached_) awaited.insert(rank);
  for (const auto& [rank, each] : awaited_) {
    if (each.how == Departure::disconnected) awaited.insert(rank);
  }
  for (Rank rank : awaited) {
    if (save.has_staged(rank) || saves_elsewhere(rank)) continue;
    return Failure{rank, Status(Code::unavailable, "it had not staged this save when its node was stopped")};
  }
  return std::nullopt;
}

void ShardWriter::consider_drain(TimeNs now, EffectWriter& out) {
  if (saves_.empty() && late_.empty() && reading_ == 0) return end_drain(out);
  if (drain_.is_patience_over() && hands_over() && !is_writing()) return end_drain(out);
  if (drain_timer_ != 0) return;
  bool is_hopeless = coordinator_lost_ || rank_local_;
  for (const auto& [key, save] : saves_) is_hopeless = is_hopeless || hopeless(save);
  if (!is_hopeless || saves_.empty()) return;
  drain_timer_ = timers_.set(
      now + config_.timeouts.drain_patience_ms * kMillisecond, out,
      [this](TimeNs then_now, EffectWriter& then_out) { drain_patience_over(then_now, then_out); });
}

void ShardWriter::drain_patience_over(TimeNs now, EffectWriter& out) {
  drain_timer_ = 0;
  if (hands_over()) return;  // its clients offer everything to the next node
  std::map<AttemptKey, std::optional<Failure>> failures;
  for (const auto& [key, save] : saves_) failures.emplace(key, hopeless(save));
  for (const auto& [key, failure] : failures) {
    if (failure) fail(now, key, failure->rank, failure->why, out);
    if (rank_local_ && saves_.contains(key) && saves_.at(key).all_published()) {
      leave_after_last_look(now, key, out);
    }
    if (rank_local_ || !coordinator_lost_) continue;
    base::rare_path<"shard writer: gives up while it stops without a coordinator">();
    give_up(key, GiveUp::stopping,
            "host " + config_.host + " was stopped while the coordinator could not be reached", out);
  }
}

}  // namespace shoal::actors
