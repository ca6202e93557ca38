// ShardWriter: the decision about a save, who makes it, and what clients receive.
#include <algorithm>

#include "actors/giving_up.h"
#include "actors/shard_writer/shard_writer.h"
#include "base/rank_names.h"
#include "base/rare_path.h"
#include "storage/decisions/rank_manifest_set.h"

namespace shoal::actors {

namespace {

constexpr uint32_t kReadRetries = 10;  // of a decision, for a root that fails now and then
constexpr TimeNs kReadAgain = 1000 * kMillisecond;

// Whether a root that answers so may be readable later.
bool may_pass(const Status& why) {
  return why.code() == Code::io || why.code() == Code::unavailable;
}

}  // namespace

// --- this node decides ---

void ShardWriter::give_up(const AttemptKey& key, GiveUp why, const std::string& cause, EffectWriter& out) {
  auto found = saves_.find(key);
  if (found == saves_.end() || found->second.is_deciding()) return;
  NodeSave& save = found->second;
  save.on(NodeSaveTrigger::given_up);
  save.is_overdue = is_overdue(why);
  std::string first = cause;
  if (save.has_failed()) {
    why = give_up_after(save.failure());
    first = cause_of(save.failed_rank(), save.failure());
  }
  operation::PublishDecision tombstone = abort_of(key, why, first.substr(0, storage::kMaxCauseBytes));
  tombstone.has_folder = save.has_folder();
  publish_tombstone(tombstone, out);
}

std::string ShardWriter::cause_of(std::optional<Rank> rank, const Status& failure) const {
  if (!rank) return host_failure_text(config_.host, failure);
  return "rank " + std::to_string(*rank) + " (host " + config_.host + "): " + failure_text(failure);
}

void ShardWriter::publish_tombstone(const operation::PublishDecision& made, EffectWriter& out) {
  operations_.start(
      made, out, [this, made](TimeNs now, Result<DecisionPtr> decision, EffectWriter& then_out) {
        if (!saves_.contains(made.key)) return;
        if (!decision.ok()) return publish_failed(now, made, decision.status(), then_out);
        if (storage::is_folder_gone(**decision)) {
          auto again = [this, made](TimeNs, EffectWriter& retry_out) {
            if (saves_.contains(made.key)) publish_tombstone(made, retry_out);
          };
          return on_folder_gone(now, made.key, std::move(again), then_out);
        }
        if ((*decision)->was_committed()) {
          base::rare_path<"shard writer: finds a manifest instead of its tombstone">();
          then_out.warning(to_string(made.key) + ": " + std::get<storage::Tombstone>(*made.body).cause +
                           "; it is committed nevertheless, because the root holds all its files");
        }
        obey(made.key, **decision, then_out);
      });
}

void ShardWriter::publish_failed(TimeNs now, const operation::PublishDecision& made, const Status& why,
                                 EffectWriter& out) {
  const AttemptKey& key = made.key;
  NodeSave& save = saves_.at(key);
  notify_undecidable(key, save, why, out);
  const bool is_awaited = !drain_.is_draining() || !attached_.empty();
  const TimeNs again_at =
      is_awaited ? save.retries.next_at(now, why) : save.retries.next_at(now, why, kAbortPatience);
  if (again_at != 0) {
    timers_.set(again_at, out, [this, made](TimeNs, EffectWriter& retry_out) {
      base::rare_path<"shard writer: publishes its tombstone again">();
      if (saves_.contains(made.key)) publish_tombstone(made, retry_out);
    });
    return;
  }
  close_unknown(key, not_decided(save, why), out);
}

Status ShardWriter::not_decided(const NodeSave& save, const Status& why) {
  return not_decided(save.has_failed() ? save.failure() : !save.undecided.ok() ? save.undecided : why);
}

// Code::aborted would state that the save will never be committed.
Status ShardWriter::not_decided(const Status& why) {
  const Code code = why.code() == Code::aborted ? Code::unavailable : why.code();
  return Status(code, "not decided: " + why.message());
}

void ShardWriter::notify_undecidable(const AttemptKey& key, NodeSave& save, const Status& why,
                                     EffectWriter& out) {
  save.on(NodeSaveTrigger::publishing_failed);
  if (!save.notified_undecided.empty()) return;
  base::rare_path<"shard writer: tells its ranks that a save is not decided">();
  save.undecidable = not_decided(save, why);
  const Status& outcome = save.undecidable;
  out.warning(to_string(key) + ": " + outcome.to_string() +
              "; cannot publish a tombstone: " + why.to_string());
  save.notified_undecided = save.without_part;
  for (auto& [rank, rank_save] : save.ranks) {
    save.notified_undecided.insert(rank_save.listener);
    if (rank_save.may(RankSaveTrigger::undecidable)) rank_save.on(RankSaveTrigger::undecidable);
    free_slab(key, rank_save, out);
  }
  for (ClientId client : save.notified_undecided) notify_outcome(client, key, outcome, out);
}

void ShardWriter::on_undecided(const wire::Undecided& message, EffectWriter& out) {
  if (auto found = saves_.find(message.key); found != saves_.end() && !found->second.has_failed()) {
    base::rare_path<"shard writer: decides what its coordinator could not">();
    found->second.undecided = message.why;
  }
  give_up(message.key, GiveUp::no_coordinator,
          "the coordinator cannot publish a decision: " + message.why.to_string(), out);
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
    base::rare_path<"shard writer: gives up without a coordinator">();
    give_up(key, GiveUp::no_coordinator,
            "host " + config_.host + " received no decision within " +
                human_seconds(config_.timeouts.host_lost_ms / 1e3) + ": it lost the coordinator (" +
                why_coordinator_lost_ + "), and no coordinator came back",
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
  superseded_ = why;
  std::vector<AttemptKey> keys;
  for (const auto& [key, save] : saves_) keys.push_back(key);
  for (const AttemptKey& key : keys) give_up(key, GiveUp::superseded, why.message(), out);
}

// --- a decision exists ---

void ShardWriter::ask_root(const AttemptKey& key, NodeSave& save, EffectWriter& out) {
  if (save.is_reading_decision) return;
  save.is_reading_decision = true;
  operations_.start(operation::ReadDecision{key}, out,
                    [this, key](TimeNs, Result<DecisionPtr> decision, EffectWriter& then_out) {
                      auto found = saves_.find(key);
                      if (found == saves_.end()) return;
                      found->second.is_reading_decision = false;
                      // No decision yet, or the read failed: the next resend reads again.
                      if (!decision.ok()) return;
                      base::rare_path<"shard writer: finds the decision without a coordinator">();
                      obey(key, **decision, then_out);
                    });
}

void ShardWriter::on_decided(NodeId from, const wire::Decided& decided, EffectWriter& out) {
  const bool is_news = !decided.committed && !decided_.contains(decided.key);
  if (is_news && from != kThisNode) {  // else the Coordinator has warned of the abort
    out.warning(to_string(decided.key) + " is aborted: " + decided.cause);
  }
  if (is_news) name_missing_here(decided.key, decided.is_overdue, out);
  const bool warns = decided.committed && !decided.cause.empty() && from != kThisNode;
  if (warns && saves_.contains(decided.key)) {
    out.warning(to_string(decided.key) + " is committed, but " + decided.cause);
  }
  if (saves_.contains(decided.key)) settle(decided.key, decided.committed, decided.cause, out);
}

void ShardWriter::name_missing_here(const AttemptKey& key, bool is_overdue, EffectWriter& out) const {
  const auto save = saves_.find(key);
  std::vector<Rank> not_called, writing;
  for (const auto& [rank, client] : attached_) {
    // The cause of the abort is about these. Others are healthy.
    if (save != saves_.end() &&
        (save->second.failed_rank() == rank || save->second.without_part.contains(client))) {
      continue;
    }
    if (save == saves_.end() || !save->second.ranks.contains(rank)) not_called.push_back(rank);
  }
  if (save != saves_.end()) {
    for (const auto& [rank, rank_save] : save->second.ranks) {
      if (rank_save.is(RankSaveState::writing)) writing.push_back(rank);
    }
  }
  const auto log = [&](const std::string& line) { is_overdue ? out.warning(line) : out.info(line); };
  if (!not_called.empty()) {
    log(to_string(key) + ": " + base::name_ranks(not_called) +
        " had not called save for it, or had not staged all; " + trainers_of(not_called));
  }
  if (!writing.empty()) {
    log(to_string(key) + ": " + base::name_ranks(writing) + (writing.size() == 1 ? " was" : " were") +
        " still writing");
  }
}

std::string ShardWriter::trainers_of(const std::vector<Rank>& ranks) const {
  std::string pids;
  for (size_t i = 0; i < std::min(ranks.size(), base::kRanksNamed); ++i) {
    const auto pid = pids_.find(ranks[i]);
    if (pid != pids_.end()) pids += (pids.empty() ? "" : ", ") + std::to_string(pid->second);
  }
  const bool is_one = ranks.size() == 1;
  if (!pids.empty()) pids = std::string(is_one ? " (pid " : " (pids ") + pids + ")";
  return (is_one ? "its trainer" : "their trainers") + pids + (is_one ? " is attached" : " are attached");
}

void ShardWriter::obey(const AttemptKey& key, const storage::Decision& decision, EffectWriter& out) {
  const bool committed = decision.was_committed();
  if (const auto save = saves_.find(key); !committed && save != saves_.end()) {
    out.warning(to_string(key) + " is aborted: " + decision.tombstone().cause);
    name_missing_here(key, save->second.is_overdue, out);
  }
  settle(key, committed, committed ? "" : decision.tombstone().cause, out);
}

void ShardWriter::settle(const AttemptKey& key, bool committed, const std::string& cause, EffectWriter& out) {
  has_seen_commit_ = has_seen_commit_ || (committed && saves_.at(key).began_here());
  const Others others = committed ? others_of_committed(saves_.at(key)) : Others();
  const Status late(Code::aborted, committed ? "what this rank staged before is committed" : cause);
  const std::string warning = committed ? cause : "";
  std::vector<ClientId> clients =
      close_save(key, committed ? NodeSaveTrigger::committed : NodeSaveTrigger::aborted, late, out, warning);
  std::erase_if(clients, [&](ClientId client) {
    return others.strangers.contains(client) || others.writing.contains(client);
  });
  for (ClientId client : others.strangers) refuse_stranger(client, key, out);
  if (committed) {
    return read_and_notify(key, std::move(clients), Outcome{NodeSaveState::committed, late, warning}, out);
  }
  if (rank_local_) sweep_rank_local(key, out);
  for (ClientId client : clients) notify_outcome(client, key, late, out);
}

ShardWriter::Others ShardWriter::others_of_committed(NodeSave& save) {
  Others others;
  for (auto& [rank, rank_save] : save.ranks) {
    if (rank_save.is_written() || rank_save.offered_again) continue;
    if (save.notified_undecided.contains(rank_save.listener)) continue;
    const bool is_writing = rank_save.is(RankSaveState::writing);
    if (is_writing) rank_save.on(RankSaveTrigger::committed);
    (is_writing ? others.writing : others.strangers).insert(rank_save.listener);
  }
  return others;
}

void ShardWriter::refuse_stranger(ClientId client, const AttemptKey& key, EffectWriter& out) {
  base::rare_path<"shard writer: a save was committed with bytes of another process">();
  notify_outcome(
      client, key,
      Status(
          Code::aborted,
          to_string(key) + " was committed before this rank wrote it: another process of this rank saved it"),
      out);
}

std::vector<ClientId> ShardWriter::close_save(const AttemptKey& key, NodeSaveTrigger trigger,
                                              const Status& late, EffectWriter& out,
                                              const std::string& warning) {
  auto found = saves_.find(key);
  NodeSave save = std::move(found->second);
  saves_.erase(found);
  save.on(trigger);
  for (TimerId* timer : {&save.resend, &save.partial, &save.deadline, &save.announce}) {
    timers_.cancel(timer, out);
  }
  decided_.put(key, Outcome{save.state(), late, warning});
  std::vector<ClientId> clients(save.without_part.begin(), save.without_part.end());
  for (auto& [rank, rank_save] : save.ranks) {
    clients.push_back(rank_save.listener);
    if (rank_save.files_writing != 0) {
      base::rare_path<"shard writer: writes go on after the decision">();
      late_.emplace(std::pair(key, rank), std::move(rank_save));
    } else {
      free_slab(key, rank_save, out);
      forget_if_unused(rank_save.client, out);
    }
  }
  std::erase_if(clients, [&](ClientId client) { return save.notified_undecided.contains(client); });
  return clients;
}

bool ShardWriter::is_closed_by_abort(const AttemptKey& key) const {
  const auto outcome = decided_.find(key);
  return outcome != decided_.end() && outcome->second.fate == NodeSaveState::aborted;
}

void ShardWriter::close_unknown(const AttemptKey& key, const Status& why, EffectWriter& out) {
  for (ClientId client : close_save(key, NodeSaveTrigger::left, why, out)) {
    notify_outcome(client, key, why, out);
  }
}

// --- what clients receive ---

void ShardWriter::notify_outcome(ClientId client, const AttemptKey& key, const Status& outcome,
                                 EffectWriter& out) {
  if (!clients_.contains(client)) return;
  out.to_client(client, local::Decided{key.step, key.attempt, outcome, nullptr});
}

void ShardWriter::notify_closed(const AttemptKey& key, const Outcome& known, ClientId client,
                                EffectWriter& out) {
  if (known.fate == NodeSaveState::aborted) return notify_outcome(client, key, known.late, out);
  read_and_notify(key, {client}, known, out);
}

void ShardWriter::read_and_notify(const AttemptKey& key, std::vector<ClientId> clients, Outcome known,
                                  EffectWriter& out) {
  read_decision(key, out,
                [this, key, clients = std::move(clients), known = std::move(known)](
                    const Result<DecisionPtr>& decision, EffectWriter& then_out) {
                  notify_as_read(key, clients, known, decision, then_out);
                });
}

void ShardWriter::read_decision(const AttemptKey& key, EffectWriter& out, DecisionRead then,
                                uint32_t failures) {
  ++reading_;
  operations_.start(operation::ReadDecision{key}, out,
                    [this, key, then = std::move(then), failures](TimeNs now, Result<DecisionPtr> decision,
                                                                  EffectWriter& then_out) {
                      if (!may_pass(decision.status()) || failures >= kReadRetries) {
                        --reading_;
                        return then(decision, then_out);
                      }
                      base::rare_path<"shard writer: reads a decision again">();
                      timers_.set(now + kReadAgain, then_out,
                                  [this, key, then, failures](TimeNs, EffectWriter& retry_out) {
                                    --reading_;
                                    read_decision(key, retry_out, then, failures + 1);
                                  });
                    });
}

void ShardWriter::notify_as_read(const AttemptKey& key, const std::vector<ClientId>& clients,
                                 const Outcome& known, const Result<DecisionPtr>& decision,
                                 EffectWriter& out) {
  Status outcome = decision.status();
  const bool is_nowhere = outcome.code() == Code::not_found;
  const bool is_unreadable = may_pass(outcome);
  std::string warning = known.warning;
  std::shared_ptr<const Metadata> metadata;
  if (decision.ok() && (*decision)->committed()) {
    metadata = config_.plans->metadata(**decision);
  } else if (decision.ok() && !(*decision)->was_committed()) {
    outcome = Status(Code::aborted, (*decision)->tombstone().cause);
  } else if (decision.ok() || ((is_nowhere || is_unreadable) && known.fate == NodeSaveState::committed)) {
    // The save was committed. Retention has deleted it since, or its manifest cannot be read now. Its name is
    // all that is known.
    if (is_unreadable) {
      const std::string unread = "its manifest could not be read: " + outcome.message();
      out.warning(to_string(key) + " is committed, but " + unread);
      warning += (warning.empty() ? "" : "; ") + unread;
    }
    if (is_nowhere) {
      base::rare_path<"shard writer: a committed checkpoint is deleted already">();
      out.warning(to_string(key) +
                  " is committed according to the coordinator, but the root holds nothing of it: " +
                  outcome.message());
    }
    outcome = ok_status();
    auto name = std::make_shared<Metadata>();
    name->key = key;
    metadata = std::move(name);
  } else if (is_nowhere) {
    base::rare_path<"shard writer: a rank asks for a save that is decided nowhere">();
    outcome = known.late;
  }
  // One message for all clients: the metadata of a large checkpoint is large.
  const auto message = std::make_shared<const local::LocalMessage>(local::Decided{
      key.step, key.attempt, outcome, std::move(metadata), outcome.ok() ? warning : std::string()});
  for (ClientId client : clients) {
    if (clients_.contains(client)) out.to_client(client, message);
  }
}

}  // namespace shoal::actors
