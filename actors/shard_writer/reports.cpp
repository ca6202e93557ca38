// ShardWriter: reports to the coordinator, and decisions.

#include <algorithm>

#include "actors/shard_writer/shard_writer.h"

namespace shoal::actors {

namespace {

constexpr uint32_t kReadRetries = 10;  // of a decision, for a root that fails now and then
constexpr TimeNs kReadAgain = 1000 * kMillisecond;

}  // namespace

// --- reporting ---

bool ShardWriter::all_here_ready(const Save& save) const {
  for (const auto& [rank, share] : save.shares) {
    if (!share.written && !share.waits && !share.offer) return false;
  }
  for (Rank rank : config_.expected_ranks) {
    if (!save.shares.contains(rank)) return false;
  }
  for (const auto& [rank, client] : attached_) {
    if (!save.shares.contains(rank)) return false;
  }
  return true;
}

void ShardWriter::announce(TimeNs now, const AttemptKey& key, EffectWriter& out) {
  Save& save = saves_.at(key);
  if (!save.failure.ok() || save.announce != 0) return;
  if (save.is_announced) return send_report(now, key, save, out);
  save.announce = timers_.set(now + config_.timeouts.resend_first_ms * kMillisecond, out,
                              [this, key](TimeNs then_now, EffectWriter& then_out) {
                                auto open = saves_.find(key);
                                if (open == saves_.end()) return;
                                open->second.announce = 0;
                                if (rank_local_ || !worlds_.empty() || !open->second.failure.ok()) return;
                                open->second.is_announced = true;
                                send_report(then_now, key, open->second, then_out);
                              });
}

void ShardWriter::consider_report(TimeNs now, const AttemptKey& key, EffectWriter& out) {
  auto found = saves_.find(key);
  if (rank_local_ || found == saves_.end() || !found->second.failure.ok()) return;
  Save& save = found->second;
  if (!save.partial_due && save.shares.size() < attached_.size()) return;
  std::pair<size_t, size_t> ready{0, 0};
  for (const auto& [rank, share] : save.shares) {
    if (share.written) ++ready.first;
    if (share.waits || share.offer) ++ready.second;
  }
  if (ready == std::pair<size_t, size_t>{0, 0} || ready == save.reported) return;
  if (!save.partial_due && (ready.first + ready.second < save.shares.size() || !all_here_ready(save))) return;
  save.reported = ready;
  save.partial_due = false;
  save.backoff.reset();
  send_report(now, key, save, out);
}

void ShardWriter::send_report(TimeNs now, const AttemptKey& key, Save& save, EffectWriter& out) {
  if (save.deciding) return;
  if (rank_local_) {  // there is no coordinator to report to: this node decides
    if (!save.failure.ok()) give_up(key, give_up_after(save.failure), save.failure.message(), out);
    return;
  }
  const bool has_no_roster = save.is_announced && worlds_.empty();
  if (!save.failure.ok()) {
    out.send(kCoordinatorNode, RoleKind::coordinator, wire::SaveFailed{key, save.failed_rank, save.failure});
  } else if (has_no_roster || save.reported != std::pair<size_t, size_t>{0, 0}) {
    std::map<RosterId, wire::ShardsWritten> reports;  // one, unless a layout has changed
    wire::LayoutsStaged staged{key, {}};
    for (const auto& [rank, share] : save.shares) {
      if (share.waits && !share.asked) staged.ranks.push_back({rank, *share.waits});
      const auto* whole = has_no_roster ? std::get_if<local::Staged>(share.message.get()) : nullptr;
      if (whole != nullptr) staged.ranks.push_back({rank, whole->layout_id});
      if (!share.written) continue;
      wire::ShardsWritten& report = reports[share.roster_id];
      report.key = key;
      report.roster_id = share.roster_id;
      report.plans.push_back({rank, share.plan_id});
      report.files.insert(report.files.end(), share.files.begin(), share.files.end());
      report.user = share.user;
    }
    for (auto& [roster, report] : reports) {
      out.send(kCoordinatorNode, RoleKind::coordinator, std::move(report));
    }
    if (!staged.ranks.empty()) out.send(kCoordinatorNode, RoleKind::coordinator, std::move(staged));
    send_local_plans(key, save, out);
    send_exchange(now, key, save, out);
    if (!save.failure.ok()) return;  // send_exchange has failed the save: its plans fit into no message
  } else {
    return;
  }
  if (coordinator_lost_) ask_root(key, save, out);
  resend_later(now, key, save, out);
}

void ShardWriter::resend_later(TimeNs now, const AttemptKey& key, Save& save, EffectWriter& out) {
  timers_.cancel(&save.resend, out);
  save.resend =
      timers_.set(now + save.backoff.next(), out, [this, key](TimeNs then_now, EffectWriter& then_out) {
        auto open = saves_.find(key);
        if (open == saves_.end()) return;
        open->second.resend = 0;
        if (open->second.exchange) open->second.exchange->resends = true;
        send_report(then_now, key, open->second, then_out);
      });
}

void ShardWriter::ask_root(const AttemptKey& key, Save& save, EffectWriter& out) {
  if (save.asks_root) return;
  save.asks_root = true;
  operations_.start(operation::ReadDecision{key}, out,
                    [this, key](TimeNs, Result<OperationResult> result, EffectWriter& then_out) {
                      auto found = saves_.find(key);
                      if (found == saves_.end()) return;
                      found->second.asks_root = false;
                      auto decision = result_as<std::shared_ptr<const storage::Decision>>(std::move(result));
                      // No decision yet, or the read failed: the next resend reads again.
                      if (!decision.ok()) return;
                      const bool committed = (*decision)->was_committed();
                      settle(key, committed, committed ? "" : (*decision)->tombstone().cause, then_out);
                    });
}

void ShardWriter::resend_all(TimeNs now, EffectWriter& out) {
  for (auto& [key, save] : saves_) {
    save.backoff.reset();
    if (save.exchange) save.exchange->resends = true;
    send_report(now, key, save, out);
  }
}

void ShardWriter::fail(TimeNs now, const AttemptKey& key, Rank rank, Status why, EffectWriter& out) {
  auto found = saves_.find(key);
  if (found == saves_.end() || !found->second.failure.ok()) return;
  Save& save = found->second;
  save.failure = std::move(why);
  save.failed_rank = rank;
  save.backoff.reset();
  out.warning(to_string(key) + ": rank " + std::to_string(rank) + ": " + save.failure.to_string());
  send_report(now, key, save, out);
}

// --- the decision ---

void ShardWriter::on_message(TimeNs now, const WireBody& body, EffectWriter& out) {
  if (const auto* decided = std::get_if<wire::Decided>(&body)) {
    if (saves_.contains(decided->key)) settle(decided->key, decided->committed, decided->cause, out);
  } else if (const auto* plan_by = std::get_if<wire::AttemptRoster>(&body)) {
    on_plan_by(now, *plan_by, out);
  } else if (const auto* global = std::get_if<wire::GlobalPlan>(&body)) {
    on_global_plan(now, *global, out);
  } else if (const auto* plans = std::get_if<wire::PlanGathering>(&body)) {
    on_plans(*plans, out);
  } else if (const auto* ranks = std::get_if<wire::RanksEnded>(&body)) {
    coordinators_ = *ranks;
  } else if (const auto* undecided = std::get_if<wire::Undecided>(&body)) {
    on_undecided(undecided->key, undecided->why, out);
  } else if (const auto* pending = std::get_if<wire::Pending>(&body)) {
    auto found = saves_.find(pending->key);
    if (found == saves_.end() || found->second.resend == 0) return;
    found->second.backoff.slow_down();
    resend_later(now, pending->key, found->second, out);
  }
}

void ShardWriter::give_up(const AttemptKey& key, GiveUp why, const std::string& cause, EffectWriter& out) {
  auto found = saves_.find(key);
  if (found == saves_.end() || found->second.deciding) return;
  Save& save = found->second;
  save.deciding = true;
  std::string received = cause;
  if (!save.failure.ok()) {
    why = give_up_after(save.failure);
    received = "rank " + std::to_string(save.failed_rank) + ": " + save.failure.to_string();
  }
  publish_tombstone(abort_of(key, why, received.substr(0, storage::kMaxCauseBytes)), out);
}

void ShardWriter::publish_tombstone(const operation::PublishDecision& made, EffectWriter& out) {
  operations_.start(
      made, out, [this, made](TimeNs now, Result<OperationResult> result, EffectWriter& then_out) {
        auto decision = result_as<std::shared_ptr<const storage::Decision>>(std::move(result));
        if (!saves_.contains(made.key)) return;
        if (!decision.ok()) return publish_failed(now, made, decision.status(), then_out);
        const bool committed = (*decision)->was_committed();
        if (committed) {
          then_out.warning(to_string(made.key) + ": " + std::get<storage::Tombstone>(*made.body).cause +
                           "; it is committed all the same: the root holds all of it");
        }
        settle(made.key, committed, committed ? "" : (*decision)->tombstone().cause, then_out);
      });
}

Status ShardWriter::not_decided(const Save& save, const Status& why) {
  const Status& first = !save.failure.ok() ? save.failure : !save.undecided.ok() ? save.undecided : why;
  return Status(first.code(), "not decided: " + first.message());
}

void ShardWriter::undecidable(const AttemptKey& key, const Status& why, EffectWriter& out) {
  Save& save = saves_.at(key);
  if (!save.notified_undecided.empty()) return;
  const Status notified = not_decided(save, why);
  out.warning(to_string(key) + ": " + notified.to_string() + "; publishing: " + why.to_string());
  save.notified_undecided = save.without_assignment;
  for (auto& [rank, share] : save.shares) {
    save.notified_undecided.insert(share.listener);
    share.asking = false;
    share.planned = true;  // what is not written yet is never written
    free_slab(key, share, out);
  }
  for (ClientId client : save.notified_undecided) notify_outcome(client, key, notified, out);
}

void ShardWriter::publish_failed(TimeNs now, const operation::PublishDecision& made, const Status& why,
                                 EffectWriter& out) {
  const AttemptKey& key = made.key;
  undecidable(key, why, out);
  PublishRetries& retries = saves_.at(key).retries;
  const bool is_awaited = !draining_ || !attached_.empty();
  const TimeNs again_at = is_awaited ? retries.next_at(now, why) : retries.next_at(now, why, kAbortPatience);
  if (again_at != 0) {
    timers_.set(again_at, out, [this, made](TimeNs, EffectWriter& retry_out) {
      if (saves_.contains(made.key)) publish_tombstone(made, retry_out);
    });
    return;
  }
  close_unknown(key, not_decided(saves_.at(key), why), out);
}

void ShardWriter::close_unknown(const AttemptKey& key, const Status& why, EffectWriter& out) {
  for (ClientId client : close_save(key, Outcome{Fate::unknown, why}, out)) {
    notify_outcome(client, key, why, out);
  }
}

void ShardWriter::on_undecided(const AttemptKey& key, const Status& why, EffectWriter& out) {
  if (auto found = saves_.find(key); found != saves_.end() && found->second.failure.ok()) {
    found->second.undecided = why;
  }
  give_up(key, GiveUp::no_coordinator, "the coordinator: " + why.to_string(), out);
}

std::vector<ClientId> ShardWriter::close_save(const AttemptKey& key, Outcome outcome, EffectWriter& out) {
  auto found = saves_.find(key);
  Save save = std::move(found->second);
  saves_.erase(found);
  timers_.cancel(&save.resend, out);
  timers_.cancel(&save.partial, out);
  timers_.cancel(&save.deadline, out);
  timers_.cancel(&save.announce, out);
  decided_.put(key, std::move(outcome));
  std::vector<ClientId> notified(save.without_assignment.begin(), save.without_assignment.end());
  for (auto& [rank, share] : save.shares) {
    notified.push_back(share.listener);
    if (share.files_writing != 0) {
      late_.emplace(std::pair(key, rank), std::move(share));
    } else {
      free_slab(key, share, out);
      forget_if_unused(share.client, out);
    }
  }
  std::erase_if(notified, [&](ClientId client) { return save.notified_undecided.contains(client); });
  return notified;
}

ShardWriter::WithoutPart ShardWriter::without_part(Save& save) {
  WithoutPart out;
  for (auto& [rank, share] : save.shares) {
    if (share.written || share.offered_again || save.notified_undecided.contains(share.listener)) continue;
    share.is_committed = share.files_writing != 0;
    (share.is_committed ? out.writing : out.strangers).insert(share.listener);
  }
  return out;
}

void ShardWriter::refuse_stranger(ClientId client, const AttemptKey& key, EffectWriter& out) {
  notify_outcome(client, key,
                 Status(Code::aborted, to_string(key) + " was committed before this rank had written it: "
                                                        "another process of this rank had saved it"),
                 out);
}

void ShardWriter::settle(const AttemptKey& key, bool committed, const std::string& cause, EffectWriter& out) {
  const WithoutPart others = committed ? without_part(saves_.at(key)) : WithoutPart();
  const Outcome outcome{
      committed ? Fate::committed : Fate::aborted,
      Status(Code::aborted, committed ? "what this rank had staged before is committed" : cause)};
  std::vector<ClientId> notified = close_save(key, outcome, out);
  std::erase_if(notified, [&](ClientId client) {
    return others.strangers.contains(client) || others.writing.contains(client);
  });
  for (ClientId client : others.strangers) refuse_stranger(client, key, out);
  if (committed) return read_and_notify(key, std::move(notified), outcome, out);
  if (rank_local_) sweep_rank_local(key, out);
  for (ClientId client : notified) notify_outcome(client, key, outcome.late, out);
}

void ShardWriter::notify_closed(const AttemptKey& key, const Outcome& known, ClientId client,
                                EffectWriter& out) {
  if (known.fate == Fate::aborted) return notify_outcome(client, key, known.late, out);
  read_and_notify(key, {client}, known, out);
}

void ShardWriter::read_and_notify(const AttemptKey& key, std::vector<ClientId> notified, Outcome known,
                                  EffectWriter& out, uint32_t failures) {
  ++reading_;
  operations_.start(
      operation::ReadDecision{key}, out,
      [this, key, notified, known, failures](TimeNs now, Result<OperationResult> result,
                                             EffectWriter& then_out) {
        --reading_;
        auto decision = result_as<std::shared_ptr<const storage::Decision>>(std::move(result));
        Status outcome = decision.status();
        const bool may_pass = outcome.code() == Code::io || outcome.code() == Code::unavailable;
        if (may_pass && failures < kReadRetries) {
          ++reading_;
          timers_.set(now + kReadAgain, then_out,
                      [this, key, notified, known, failures](TimeNs, EffectWriter& retry_out) {
                        --reading_;
                        read_and_notify(key, notified, known, retry_out, failures + 1);
                      });
          return;
        }
        const bool is_nowhere = outcome.code() == Code::not_found;
        std::shared_ptr<const Metadata> metadata;
        if (decision.ok() && (*decision)->committed()) {
          metadata = config_.plans->metadata(**decision);
        } else if (decision.ok() && !(*decision)->was_committed()) {
          outcome = Status(Code::aborted, (*decision)->tombstone().cause);
        } else if (decision.ok() || (is_nowhere && known.fate == Fate::committed)) {
          // The save was committed, and retention has deleted it since. Its name is all that is known.
          if (is_nowhere) {
            then_out.warning(
                to_string(key) +
                " is committed as this node heard, and nothing of it is in the root: " + outcome.message());
          }
          outcome = ok_status();
          auto name = std::make_shared<Metadata>();
          name->key = key;
          metadata = std::move(name);
        } else if (is_nowhere) {
          outcome = known.late;
        }
        // One message for all clients: the metadata of a large checkpoint is large.
        const auto message = std::make_shared<const local::LocalMessage>(
            local::Decided{key.step, key.attempt, outcome, std::move(metadata)});
        for (ClientId client : notified) {
          if (clients_.contains(client)) then_out.to_client(client, message);
        }
      });
}

void ShardWriter::notify_outcome(ClientId client, const AttemptKey& key, const Status& outcome,
                                 EffectWriter& out) {
  if (!clients_.contains(client)) return;
  out.to_client(client, local::Decided{key.step, key.attempt, outcome, nullptr});
}

void ShardWriter::give_up_without_coordinator(TimeNs now, EffectWriter& out) {
  if (!coordinator_lost_) return;
  const TimeNs patience = config_.timeouts.host_lost_ms * kMillisecond;
  std::vector<AttemptKey> due;
  std::optional<TimeNs> next;
  for (const auto& [key, save] : saves_) {
    const TimeNs at = std::max(coordinator_lost_at_, save.begun) + patience;
    if (at <= now) {
      due.push_back(key);
    } else if (!next || at < *next) {
      next = at;
    }
  }
  for (const AttemptKey& key : due) {
    if (rank_local_) {  // rank-local: the other ranks need no coordinator
      if (turns(saves_.at(key)) == 1) look_for_lost(now, key, out);
      continue;
    }
    give_up(key, GiveUp::no_coordinator,
            "host " + config_.host + " heard no decision within " +
                human_seconds(config_.timeouts.host_lost_ms / 1e3) + ": it has lost the coordinator (" +
                why_coordinator_lost_ + "), and none has come back",
            out);
  }
  timers_.cancel(&away_timer_, out);
  if (!next) return;
  away_timer_ = timers_.set(*next, out, [this](TimeNs then_now, EffectWriter& then_out) {
    away_timer_ = 0;
    give_up_without_coordinator(then_now, then_out);
  });
}

void ShardWriter::on_coordinator_superseded(const Status& why, EffectWriter& out) {
  coordinator_superseded_ = why;
  std::vector<AttemptKey> keys;
  for (const auto& [key, save] : saves_) keys.push_back(key);
  for (const AttemptKey& key : keys) give_up(key, GiveUp::superseded, why.message(), out);
}

}  // namespace shoal::actors
