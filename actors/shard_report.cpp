// ShardWriter: reports to the coordinator, and what becomes of a decision.
#include <algorithm>

#include "actors/shard_writer_internal.h"

namespace shoal {

namespace {

constexpr size_t kMaxDecisionsRemembered = 1024;
constexpr TimeNs kPublishRetry = 1000 * kMillisecond;

}  // namespace

// --- reporting ---

bool ShardWriter::all_here_written(const Save& save) const {
  for (const auto& [rank, share] : save.shares) {
    if (!share.written) return false;
  }
  for (Rank rank : facts_.expected_ranks) {
    if (!save.shares.contains(rank)) return false;
  }
  for (const auto& [rank, client] : attached_) {
    if (!save.shares.contains(rank)) return false;
  }
  return true;
}

void ShardWriter::consider_report(TimeNs now, const AttemptKey& key, EffectWriter& out) {
  auto found = saves_.find(key);
  if (found == saves_.end() || !found->second.failure.ok()) return;
  Save& save = found->second;
  const size_t written = static_cast<size_t>(std::count_if(
      save.shares.begin(), save.shares.end(), [](const auto& share) { return share.second.written; }));
  if (written == 0 || written == save.reported) return;
  if (!save.partial_due && !all_here_written(save)) return;
  save.reported = written;
  save.backoff.reset();
  send_report(now, key, save, out);
}

void ShardWriter::send_report(TimeNs now, const AttemptKey& key, Save& save, EffectWriter& out) {
  if (save.deciding) return;
  if (!save.failure.ok()) {
    out.send(kCoordinatorNode, RoleKind::coordinator, wire::SaveFailed{key, save.failed_rank, save.failure});
  } else if (save.reported != 0) {
    wire::ShardsWritten report;
    report.key = key;
    report.roster_id = world_->roster.id();
    for (const auto& [rank, share] : save.shares) {
      if (!share.written) continue;
      report.plans.push_back({rank, share.plan_id});
      report.files.insert(report.files.end(), share.files.begin(), share.files.end());
    }
    out.send(kCoordinatorNode, RoleKind::coordinator, std::move(report));
  } else {
    return;
  }
  timers_.cancel(&save.resend, out);
  save.resend =
      timers_.set(now + save.backoff.next(), out, [this, key](TimeNs then_now, EffectWriter& then_out) {
        auto open = saves_.find(key);
        if (open == saves_.end()) return;
        open->second.resend = 0;
        send_report(then_now, key, open->second, then_out);
      });
}

void ShardWriter::resend_all(TimeNs now, EffectWriter& out) {
  for (auto& [key, save] : saves_) {
    save.backoff.reset();
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
  } else if (const auto* pending = std::get_if<wire::Pending>(&body)) {
    auto found = saves_.find(pending->key);
    if (found == saves_.end() || found->second.resend == 0) return;
    found->second.backoff.slow_down();
    timers_.cancel(&found->second.resend, out);
    const AttemptKey key = pending->key;
    found->second.resend = timers_.set(now + found->second.backoff.next(), out,
                                       [this, key](TimeNs then_now, EffectWriter& then_out) {
                                         auto open = saves_.find(key);
                                         if (open == saves_.end()) return;
                                         open->second.resend = 0;
                                         send_report(then_now, key, open->second, then_out);
                                       });
  }
}

void ShardWriter::give_up(const AttemptKey& key, EffectWriter& out) {
  auto found = saves_.find(key);
  if (found == saves_.end()) return;
  Save& save = found->second;
  save.deadline = 0;
  save.deciding = true;
  std::string cause = !save.failure.ok()
                          ? "rank " + std::to_string(save.failed_rank) + ": " + save.failure.to_string()
                          : "host " + facts_.host + " heard no decision within " +
                                human_seconds(facts_.times.node_deadline_ms / 1e3);
  operations_.start(
      operation::PublishDecision{key, Tombstone{Tombstone::Reason::aborted, cause.substr(0, kMaxCauseBytes)}},
      out, [this, key](TimeNs now, Result<OperationResult> result, EffectWriter& then_out) {
        auto decision = result_as<std::shared_ptr<const Decision>>(std::move(result));
        if (!saves_.contains(key)) return;
        if (!decision.ok()) {
          undecidable(key, decision.status(), then_out);
          timers_.set(now + kPublishRetry, then_out,
                      [this, key](TimeNs, EffectWriter& retry_out) { give_up(key, retry_out); });
          return;
        }
        settle(key, (*decision)->committed(), (*decision)->committed() ? "" : (*decision)->tombstone().cause,
               then_out);
      });
}

void ShardWriter::undecidable(const AttemptKey& key, const Status& why, EffectWriter& out) {
  Save& save = saves_.at(key);
  if (!save.told_undecided.empty()) return;
  const Status& first = save.failure.ok() ? why : save.failure;
  const Status told(first.code(), "not decided: " + first.message());
  out.warning(to_string(key) + ": " + told.to_string() + "; publishing: " + why.to_string());
  save.told_undecided = save.without_share;
  for (auto& [rank, share] : save.shares) {
    save.told_undecided.insert(share.listener);
    share.asking = false;
    share.planned = true;  // what is not written yet never will be
    free_slab(key, share, out);
  }
  for (ClientId client : save.told_undecided) tell_outcome(client, key, told, {}, out);
}

void ShardWriter::settle(const AttemptKey& key, bool committed, const std::string& cause, EffectWriter& out) {
  auto found = saves_.find(key);
  Save save = std::move(found->second);
  saves_.erase(found);
  timers_.cancel(&save.resend, out);
  timers_.cancel(&save.partial, out);
  timers_.cancel(&save.deadline, out);
  decided_.emplace(key,
                   Outcome{committed, committed ? "what this rank had staged before is committed" : cause});
  if (decided_.size() > kMaxDecisionsRemembered) decided_.erase(decided_.begin());
  std::vector<ClientId> told(save.without_share.begin(), save.without_share.end());
  for (auto& [rank, share] : save.shares) {
    told.push_back(share.listener);
    if (share.files_writing != 0) {
      late_.emplace(std::pair(key, rank), std::move(share));
    } else {
      free_slab(key, share, out);
      forget_if_unused(share.client, out);
    }
  }
  std::erase_if(told, [&](ClientId client) { return save.told_undecided.contains(client); });
  if (committed) return read_and_tell(key, std::move(told), out);
  for (ClientId client : told) tell_outcome(client, key, Status(Code::aborted, cause), {}, out);
}

void ShardWriter::read_and_tell(const AttemptKey& key, std::vector<ClientId> told, EffectWriter& out) {
  ++reading_;
  operations_.start(operation::ReadDecision{key}, out,
                    [this, key, told](TimeNs, Result<OperationResult> result, EffectWriter& then_out) {
                      --reading_;
                      auto decision = result_as<std::shared_ptr<const Decision>>(std::move(result));
                      Status outcome = decision.status();
                      Metadata metadata;
                      if (decision.ok() && (*decision)->committed()) {
                        metadata = metadata_of(**decision);
                      } else if (decision.ok()) {
                        outcome = Status(Code::aborted, (*decision)->tombstone().cause);
                      }
                      for (ClientId client : told) tell_outcome(client, key, outcome, metadata, then_out);
                    });
}

void ShardWriter::tell_outcome(ClientId client, const AttemptKey& key, const Status& outcome,
                               Metadata metadata, EffectWriter& out) {
  if (!clients_.contains(client)) return;
  out.to_client(client, local::Decided{key.step, key.attempt, outcome, std::move(metadata)});
}

}  // namespace shoal
