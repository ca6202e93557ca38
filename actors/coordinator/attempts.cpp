// Coordinator: attempts, from the first message about one until its decision is sent.
//
// The roster of an attempt is made of its own layouts: those with which each rank saved. A rank may have
// reported under another roster. Then the attempt is committed only if its own roster assigns the same pieces
// to that rank.
#include <algorithm>
#include <utility>

#include "actors/coordinator/coordinator.h"
#include "actors/giving_up.h"
#include "actors/messages/message_bounds.h"
#include "base/rare_path.h"

namespace shoal::actors {

bool Coordinator::answer_decided(NodeId to, const AttemptKey& key, EffectWriter& out) {
  auto found = decided_.find(key);
  if (found == decided_.end()) return false;
  const Outcome& outcome = found->second;
  if (!outcome.undecided.ok()) {
    out.send(to, RoleKind::shard_writer, wire::Undecided{key, outcome.undecided});
    return true;
  }
  out.send(to, RoleKind::shard_writer, decided_message(key, outcome));
  if (!outcome.committed) sweeps_.sweep(key, out);  // the node may have written more since the last sweep
  return true;
}

Coordinator::Opened Coordinator::open(TimeNs now, const AttemptKey& key, EffectWriter& out) {
  if (key.generation != config_.generation) return {};
  if (auto found = attempts_.find(key); found != attempts_.end()) return {&found->second, false};
  if (attempts_.size() >= kMaxAttemptsInFlight) {  // reports are sent again
    base::rare_path<"coordinator: too many attempts are in flight">();
    return {};
  }
  const AttemptId id{key, ++attempts_opened_};
  Attempt& attempt = attempts_.try_emplace(key, id, now, config_.timeouts, attempt_counts_).first->second;
  await_news(now, attempt, out);
  // An earlier coordinator or a node may have decided it.
  operations_.start(operation::ReadDecision{key}, out,
                    [this, id](TimeNs then_now, Result<DecisionPtr> decision, EffectWriter& then_out) {
                      with_attempt(id, [&](Attempt& opened) {
                        if (decision.ok()) {
                          base::rare_path<"coordinator: opens an attempt that is decided">();
                          return decided(opened, *decision, then_out);
                        }
                        if (!opened.may(AttemptTrigger::no_decision_found)) return;  // given up meanwhile
                        opened.on(AttemptTrigger::no_decision_found);
                        take_early(then_now, opened, then_out);
                      });
                    });
  return {&attempt, true};
}

// --- deadlines ---

// Fires every host_lost_ms to look into the root, at half the deadline to warn of what is missing, and at the
// deadline.
void Coordinator::await_news(TimeNs now, Attempt& attempt, EffectWriter& out) {
  const TimeNs deadline = config_.timeouts.attempt_deadline_ms * kMillisecond;
  const TimeNs look_at = now + config_.timeouts.host_lost_ms * kMillisecond;
  const TimeNs act_at = attempt.last_news() + (attempt.has_warned() ? deadline : deadline / 2);
  attempt.deadline = timers_.set(
      std::min(look_at, act_at), out, [this, id = attempt.id()](TimeNs then_now, EffectWriter& then_out) {
        with_attempt(id, [&](Attempt& opened) { no_news(then_now, opened, then_out); });
      });
}

// Nodes that have lost this coordinator for host_lost_ms decide their saves themselves. They report nothing
// about them any more.
void Coordinator::look_into_root(Attempt& attempt, EffectWriter& out) {
  look_again_for_first_roster(out);
  if (!attempt.may(AttemptTrigger::committed) || !attempt.takes_reports()) return;
  operations_.start(operation::ReadDecision{attempt.key()}, out,
                    [this, id = attempt.id()](TimeNs, Result<DecisionPtr> decision, EffectWriter& then_out) {
                      if (!decision.ok()) return;  // none, or the root cannot be read: the deadline holds
                      with_attempt(id, [&](Attempt& opened) {
                        const bool is_committed = (*decision)->was_committed();
                        if (!opened.may(is_committed ? AttemptTrigger::committed : AttemptTrigger::aborted))
                          return;
                        base::rare_path<"coordinator: finds the decision of another party">();
                        decided(opened, *decision, then_out);
                      });
                    });
}

void Coordinator::send_pending(TimeNs now, NodeId to, const Attempt& attempt, EffectWriter& out) {
  out.send(to, RoleKind::shard_writer, wire::Pending{attempt.key()});
  // Far below the deadline of the node, which is longer than the coordinator's.
  const TimeNs is_long = config_.timeouts.attempt_deadline_ms * kMillisecond / 3;
  if (now - attempt.begun() < is_long) return;
  out.send(to, RoleKind::shard_writer, wire::SaveProgress{attempt.key(), attempt.news()});
}

void Coordinator::on_progress(TimeNs now, NodeId from, const wire::SaveProgress& progress,
                              EffectWriter& out) {
  nodes_.insert(from);
  if (answer_decided(from, progress.key, out)) return;
  if (progress.rank_local) return pass_progress(now, progress.key, out);
  const auto [attempt, is_new] = open(now, progress.key, out);
  if (attempt == nullptr) return;
  attempt->on_progress(now, from, progress.amount);
  if (is_new) look_for_ended(now, *attempt, out);
}

void Coordinator::no_news(TimeNs now, Attempt& attempt, EffectWriter& out) {
  attempt.deadline = 0;
  const uint64_t deadline_ms = config_.timeouts.attempt_deadline_ms;
  const TimeNs deadline = deadline_ms * kMillisecond;
  const TimeNs waited = now - attempt.last_news();
  if (waited < deadline) {
    if (waited >= deadline / 2 && !attempt.has_warned()) warn_of_wait(now, attempt, out);
    look_into_root(attempt, out);
    return await_news(now, attempt, out);
  }
  if (!attempt.roster_failure.ok()) {
    base::rare_path<"coordinator: aborts at the deadline without a roster">();
    return abort(attempt, GiveUp::root_unreliable, attempt.roster_failure.message(), out);
  }
  if (!first_roster_failure_.ok()) {
    base::rare_path<"coordinator: aborts at the deadline without a first roster">();
    return abort(attempt, GiveUp::root_unreliable, "there is no roster: " + first_roster_failure_.message(),
                 out);
  }
  base::rare_path<"coordinator: aborts at the deadline">();
  const Missing missing = what_is_missing(now, attempt);
  if (!missing.ranks.empty() && world_size() != 0) overdue_.put(attempt.key(), Overdue{now, missing.ranks});
  abort(attempt, GiveUp::deadline,
        missing.cause("within " + human_seconds(deadline_ms / 1e3) + " of the last report"), out);
}

void Coordinator::warn_of_wait(TimeNs now, Attempt& attempt, EffectWriter& out) {
  attempt.news_at_warning = attempt.news();
  if (!attempt.is_open()) return;  // its decision is being published
  const TimeNs waited = now - attempt.last_news();
  const std::string span = human_seconds(static_cast<double>(waited / kMillisecond) / 1e3);
  out.warning(to_string(attempt.key()) + " waits: " + what_is_missing(now, attempt).cause("for " + span) +
              "; this coordinator aborts the save after " +
              human_seconds(config_.timeouts.attempt_deadline_ms / 1e3) + " without a further report");
}

Missing Coordinator::what_is_missing(TimeNs now, const Attempt& attempt) const {
  if (!first_roster_failure_.ok()) return {{}, "there is no roster: " + first_roster_failure_.message(), ""};
  if (world_size() == 0) {
    Missing missing = gathering_.what_is_missing();
    missing.what = "there is no roster: " + missing.what;
    return missing;
  }
  Missing missing = attempt.what_is_missing(world_size(), presence_);
  missing.detail += reported_elsewhere(now, attempt.key(), missing.ranks);
  return missing;
}

std::string Coordinator::reported_elsewhere(TimeNs now, const AttemptKey& but,
                                            const std::vector<Rank>& ranks) const {
  const auto text = [](Rank rank, const AttemptKey& key, const char* what) {
    return "; rank " + std::to_string(rank) + " has reported " + to_string(key) + ", which " + what;
  };
  for (const auto& [key, other] : attempts_) {
    if (key == but || !other.is_open()) continue;
    for (Rank rank : ranks) {
      if (other.has_sent(rank)) return text(rank, key, "is not complete either");
    }
  }
  const TimeNs lately = config_.timeouts.attempt_deadline_ms * kMillisecond;
  for (const auto& [key, other] : overdue_) {
    if (key == but || now - other.at > lately) continue;
    for (Rank rank : ranks) {
      const bool has_sent = !std::binary_search(other.missing.begin(), other.missing.end(), rank);
      if (has_sent) return text(rank, key, "was not complete either");
    }
  }
  return "";
}

// --- reports ---

void Coordinator::on_report(TimeNs now, NodeId from, const wire::ShardsWritten& report, EffectWriter& out) {
  nodes_.insert(from);
  presence_.reported(from, ranks_in(report.plans));
  if (answer_decided(from, report.key, out)) return;
  const auto [attempt, is_new] = open(now, report.key, out);
  if (attempt == nullptr) return;
  send_pending(now, from, *attempt, out);
  if (!attempt->is_open()) return;
  if (!attempt->takes_reports() || !rosters_.newest()) {
    base::rare_path<"coordinator: keeps a report that comes early">();
    attempt->keep_early(now, from, report, &early_bytes_);
    look_again_for_first_roster(out);
  } else {
    take(now, from, report, *attempt, out);
  }
  if (is_new) look_for_ended(now, *attempt, out);
}

void Coordinator::take_early(TimeNs now, Attempt& attempt, EffectWriter& out) {
  if (!attempt.takes_reports()) return;
  if (rosters_.newest()) {
    const Attempt::EarlyReports early = attempt.take_early(&early_bytes_);
    for (const auto& [from, report] : early) take(now, from.first, report, attempt, out);
  }
  consider(attempt, out);
}

void Coordinator::take(TimeNs now, NodeId from, const wire::ShardsWritten& report, Attempt& attempt,
                       EffectWriter& out) {
  if (!attempt.takes_reports()) return;
  std::shared_ptr<ExpectedPlans> under = rosters_.find(report.roster_id);
  if (!under) {
    base::rare_path<"coordinator: reads the roster of a report">();
    attempt.keep_early(now, from, report, &early_bytes_);
    return read_roster(report.roster_id, out);
  }
  if (Status fits = attempt.take(now, report, under); !fits.ok()) {
    return abort(attempt, GiveUp::contradiction, fits.message(), out);
  }
  consider(attempt, out);
}

void Coordinator::on_failed(TimeNs now, NodeId from, const wire::SaveFailed& failed, EffectWriter& out) {
  nodes_.insert(from);
  if (answer_decided(from, failed.key, out)) return;
  Attempt* attempt = open(now, failed.key, out).attempt;
  if (attempt == nullptr) return;
  presence_.reported(from, failed.rank ? std::vector<Rank>{*failed.rank} : std::vector<Rank>(), failed.host);
  abort(*attempt, give_up_after(failed.why), cause_of(failed), out);
}

std::string Coordinator::cause_of(const wire::SaveFailed& failed) const {
  if (is_refused()) return "there is no roster: " + refused_.message();
  return failed.rank ? presence_.name_ranks({*failed.rank}) + ": " + failure_text(failed.why)
                     : host_failure_text(failed.host, failed.why);
}

// --- commits and aborts ---

void Coordinator::consider(Attempt& attempt, EffectWriter& out) {
  if (world_size() == 0) return;
  switch (attempt.next(world_size())) {
    case Attempt::Next::wait:
      return;
    case Attempt::Next::make_roster:
      if (has_layouts(attempt, out)) make_roster(attempt, out);
      return;
    case Attempt::Next::commit:
      return commit(attempt, *attempt.roster(), out);
    case Attempt::Next::commit_as_reported: {
      base::rare_path<"coordinator: commits under the roster of the reports">();
      const std::shared_ptr<ExpectedPlans> under = attempt.first_reported_under();
      // A coordinator that began after the first save does not know it as the newest.
      if (attempt.id().number >= newest_made_by_) {
        newest_made_by_ = attempt.id().number;
        make_newest(under, out);
      }
      return commit(attempt, *under, out);
    }
  }
}

void Coordinator::commit(Attempt& attempt, const ExpectedPlans& under, EffectWriter& out) {
  auto made = std::make_shared<storage::DecisionBody>(attempt.make_manifest(under));
  const storage::Manifest& manifest = std::get<storage::Manifest>(*made);
  if (manifest.files.empty()) {
    return abort(attempt, GiveUp::contradiction, "no rank holds anything to save", out);
  }
  if (!compare_replicas(attempt, under, out)) return;
  attempt.on(AttemptTrigger::all_reported);
  check_files(attempt.id(), std::move(made), out);
}

// Every rank has reported its files as durable. So a root that cannot be read now is no reason to abort.
void Coordinator::check_files(const AttemptId& id, std::shared_ptr<const storage::DecisionBody> made,
                              EffectWriter& out) {
  auto files =
      std::shared_ptr<const std::vector<storage::FileEntry>>(made, &std::get<storage::Manifest>(*made).files);
  operations_.start(
      operation::CheckFiles{id.key, std::move(files)}, out,
      [this, id, body = std::move(made)](TimeNs now, Result<operation::Done> result, EffectWriter& then_out) {
        with_attempt(id, [&](Attempt& checked) {
          if (!result.ok()) return files_not_checked(now, checked, result.status(), body, then_out);
          checked.on(AttemptTrigger::files_match);
          if_not_superseded(then_out, [this, id, body](TimeNs, EffectWriter& last_out) {
            publish(id, {id.key, body}, last_out);
          });
        });
      });
}

void Coordinator::files_not_checked(TimeNs now, Attempt& attempt, const Status& why,
                                    const std::shared_ptr<const storage::DecisionBody>& made,
                                    EffectWriter& out) {
  if (why.code() == Code::not_found || why.code() == Code::corrupt) {
    base::rare_path<"coordinator: files differ from their reports">();
    attempt.on(AttemptTrigger::files_differ);
    return publish_abort(attempt, GiveUp::files_differ, why.message(), out);
  }
  const Status unreadable = why.with_context("its files cannot be checked");
  const auto again = [this, made](Attempt& checked, EffectWriter& then_out) {
    base::rare_path<"coordinator: checks files again">();
    check_files(checked.id(), made, then_out);
  };
  if (try_again(now, attempt.id(), attempt.check_retries, unreadable, out, again)) return;
  base::rare_path<"coordinator: aborts because files cannot be checked">();
  attempt.on(AttemptTrigger::files_unreadable);
  publish_abort(attempt, GiveUp::root_unreliable, unreadable.message(), out);
}

bool Coordinator::compare_replicas(Attempt& attempt, const ExpectedPlans& under, EffectWriter& out) {
  const ReplicaComparison& replicas = attempt.replicas();
  if (replicas.empty()) return true;
  if (!replicas.unequal_windows().empty()) {
    out.warning(to_string(attempt.key()) + ": " + replicas.unequal_windows());
  }
  const Result<std::optional<ReplicaComparison::Difference>> found = replicas.compare(under.world());
  if (found.ok() && !*found) return true;
  std::string text =
      found.ok() ? describe(**found, [this](const auto& ranks) { return presence_.name_ranks(ranks); })
                 : found.status().message();
  if (replicas.policy() == ReplicaCheck::abort) {
    abort(attempt, GiveUp::contradiction, text, out);
    return false;
  }
  out.warning(to_string(attempt.key()) + ": " + text +
              "; it is committed nevertheless (replica_check is warn)");
  attempt.warning = std::move(text).substr(0, storage::kMaxCauseBytes);
  return true;
}

void Coordinator::abort(Attempt& attempt, GiveUp why, const std::string& cause, EffectWriter& out) {
  if (!attempt.is_open()) return;
  attempt.on(AttemptTrigger::given_up);
  publish_abort(attempt, why, cause, out);
}

void Coordinator::publish_abort(Attempt& attempt, GiveUp why, const std::string& cause, EffectWriter& out) {
  attempt.given_up = why;
  const AttemptId id = attempt.id();
  if_not_superseded(out, [this, id, why, cause](TimeNs, EffectWriter& then_out) {
    publish(id, abort_of(id.key, why, cause.substr(0, storage::kMaxCauseBytes)), then_out);
  });
}

// Publishing a decision of an attempt that is closed by now changes nothing: the first one counts.
void Coordinator::publish(const AttemptId& id, const operation::PublishDecision& made, EffectWriter& out) {
  operations_.start(
      made, out, [this, id, made](TimeNs now, Result<DecisionPtr> decision, EffectWriter& then_out) {
        const auto* tombstone = std::get_if<storage::Tombstone>(made.body.get());
        if (decision.ok() && tombstone != nullptr && (*decision)->committed()) {
          base::rare_path<"coordinator: finds a manifest instead of its tombstone">();
          then_out.warning(to_string(made.key) + ": " + tombstone->cause +
                           "; it is committed nevertheless, because the root holds all its files");
        }
        with_attempt(id, [&](Attempt& attempt) {
          if (!decision.ok()) return publish_failed(now, attempt, made, decision.status(), then_out);
          decided(attempt, *decision, then_out);
        });
      });
}

// The state of the root is unknown. Publishing again under the same name is safe.
void Coordinator::publish_failed(TimeNs now, Attempt& attempt, const operation::PublishDecision& made,
                                 const Status& why, EffectWriter& out) {
  const auto* abort = std::get_if<storage::Tombstone>(made.body.get());
  // Trainers must soon learn of a failed save, even if the abort cannot be recorded.
  PublishRetries& retries = attempt.decision_retries;
  const TimeNs again_at =
      abort == nullptr ? retries.next_at(now, why) : retries.next_at(now, why, kAbortPatience);
  if (again_at == 0) {
    return leave_undecided(
        now, attempt, abort == nullptr ? why : Status(why.code(), abort->cause + "; " + why.message()), out);
  }
  again_later(again_at, attempt.id(), why, out, [this, made](Attempt& undecided, EffectWriter& then_out) {
    if (std::holds_alternative<storage::Tombstone>(*made.body)) {
      base::rare_path<"coordinator: publishes a tombstone again">();
    } else {
      base::rare_path<"coordinator: publishes a manifest again">();
    }
    publish(undecided.id(), made, then_out);
  });
}

// Each node then publishes a tombstone itself, or reports to its clients why no decision is possible. Nodes
// do not sweep what they abort.
void Coordinator::leave_undecided(TimeNs now, Attempt& attempt, const Status& why, EffectWriter& out) {
  base::rare_path<"coordinator: leaves an attempt undecided">();
  const AttemptKey key = attempt.key();
  close(attempt, AttemptTrigger::publishing_failed, out);
  const Outcome outcome{false, "", std::nullopt, why.with_context("cannot publish a decision")};
  decided_.put(key, outcome);
  send_outcome(key, outcome, out);
  out.warning(to_string(key) + " is left undecided: " + outcome.undecided.to_string());
  sweeps_.sweep_later(now, key, out);
}

void Coordinator::decided(Attempt& attempt, const std::shared_ptr<const storage::Decision>& decision,
                          EffectWriter& out) {
  const AttemptKey key = attempt.key();
  const bool was_committed = decision->was_committed();
  const Outcome outcome{was_committed, was_committed ? attempt.warning : decision->tombstone().cause,
                        was_committed ? std::nullopt : attempt.given_up, ok_status()};
  close(attempt, was_committed ? AttemptTrigger::committed : AttemptTrigger::aborted, out);
  decided_.put(key, outcome);
  ++outcomes_to_send_;
  operations_.start(
      operation::RecordDecision{decision}, out,
      [this, key, outcome](TimeNs now, Result<operation::Done> result, EffectWriter& then_out) {
        --outcomes_to_send_;
        if (!result.ok()) {
          // The catalog is an index of the root: the decision counts without it.
          then_out.warning("cannot record the decision in the catalog: " + result.status().to_string());
        }
        send_outcome(key, outcome, then_out);
        if (outcome.committed) {
          then_out.info(to_string(key) + " is committed");
          return retention_.committed(then_out);
        }
        then_out.warning(to_string(key) + " is aborted: " + outcome.cause);
        sweeps_.sweep(key, then_out);
        sweeps_.sweep_later(now, key, then_out);
      });
}

void Coordinator::close(Attempt& attempt, AttemptTrigger how, EffectWriter& out) {
  const AttemptKey key = attempt.key();
  attempt.on(how);
  timers_.cancel(&attempt.deadline, out);
  (void)attempt.take_early(&early_bytes_);
  plans_sent_.forget_if([&](const auto& sent) { return sent.first == key; });
  attempts_.erase(key);
  SHOAL_CHECK(!attempts_.empty() || early_bytes_ == 0);
  forget_layouts();
}

wire::Decided Coordinator::decided_message(const AttemptKey& key, const Outcome& outcome) {
  const bool overdue = outcome.give_up && is_overdue(*outcome.give_up);
  return {key, outcome.committed, outcome.cause, overdue, outcome.give_up};
}

void Coordinator::send_outcome(const AttemptKey& key, const Outcome& outcome, EffectWriter& out) {
  for (NodeId node : nodes_) {
    if (outcome.undecided.ok()) {
      out.send(node, RoleKind::shard_writer, decided_message(key, outcome));
    } else {
      out.send(node, RoleKind::shard_writer, wire::Undecided{key, outcome.undecided});
    }
  }
}

// --- the attempt's own roster ---

void Coordinator::read_roster(const RosterId& id, EffectWriter& out) {
  if (!reading_rosters_.insert(id).second) return;
  operations_.start(
      operation::ReadRoster{config_.generation, id}, out,
      [this, id](TimeNs now, Result<storage::RosterRecord> record, EffectWriter& then_out) {
        reading_rosters_.erase(id);
        if (record.ok() && !rosters_.find(id)) {
          rosters_.add_older(std::make_shared<ExpectedPlans>(config_, record->world, record->options));
        } else if (!record.ok()) {
          then_out.warning("cannot read roster " + id.short_hex() + ": " + record.status().to_string());
        }
        const bool is_nowhere = record.status().code() == Code::not_found;
        if (is_nowhere) base::rare_path<"coordinator: a report names an unknown roster">();
        for (auto& [key, attempt] : attempts_) {
          if (record.ok()) take_early(now, attempt, then_out);
          const auto& early = attempt.early();
          const bool names_it = std::any_of(early.begin(), early.end(),
                                            [&](const auto& report) { return report.first.second == id; });
          if (!is_nowhere || !names_it) continue;
          abort(attempt, GiveUp::contradiction,
                "ranks saved under roster " + id.short_hex() + ", which this generation does not have",
                then_out);
        }
      });
}

void Coordinator::on_layouts_staged(TimeNs now, NodeId from, const wire::LayoutsStaged& staged,
                                    EffectWriter& out) {
  nodes_.insert(from);
  presence_.reported(from, ranks_in(staged.ranks));
  if (answer_decided(from, staged.key, out)) return;
  const auto [attempt, is_new] = open(now, staged.key, out);
  if (attempt == nullptr) return;
  send_pending(now, from, *attempt, out);
  if (!attempt->is_open()) return;
  layouts_.request_again(from);
  std::set<std::shared_ptr<ExpectedPlans>> reported_under;  // null: not reported
  for (const wire::RankLayout& rank : staged.ranks) {
    auto under = attempt->reported_under(rank.rank);
    if (under) {
      base::rare_path<"coordinator: an earlier node of a rank has reported">();
    } else {
      attempt->wait_for_roster(now, rank.rank, {from, rank.layout_id});
    }
    reported_under.insert(std::move(under));
  }
  std::shared_ptr<ExpectedPlans> answer = attempt->roster();
  // An earlier node reported all these ranks under one roster. If it did not report one of them, that rank
  // may have a layout that is not in this roster.
  if (!answer && reported_under.size() == 1) answer = *reported_under.begin();
  if (answer) {
    return out.send(from, RoleKind::shard_writer,
                    wire::AttemptRoster{staged.key, answer->world().roster.id()});
  }
  consider(*attempt, out);
  if (is_new) look_for_ended(now, *attempt, out);
}

LayoutPtr Coordinator::find_layout(const Attempt& attempt, const LayoutId& id) const {
  if (LayoutPtr layout = layouts_.find(id)) return layout;
  if (LayoutPtr layout = rosters_.find_layout(id)) return layout;
  for (const auto& [rank, reported] : attempt.reported()) {  // of a roster that is no longer in memory
    if (reported.under->world().layout_of(rank).id() == id) return actors::find_layout(*reported.under, id);
  }
  return nullptr;
}

bool Coordinator::has_layouts(const Attempt& attempt, EffectWriter& out) {
  bool are_here = true, are_settled = true;
  for (const auto& [layout, ranks] : attempt.waiting_layouts()) {
    if (find_layout(attempt, layout)) continue;
    are_here = false;
    are_settled = are_settled && layouts_.is_requested(layout, nodes_);
  }
  // Each message of a node comes here, so the ranks are not looked at each time.
  if (are_settled) return are_here;
  std::map<NodeId, std::vector<LayoutId>> wanted;
  bool all = true;
  // The last layout that is here, or requested already. Neighbouring ranks mostly have the same layout.
  const LayoutId* settled = nullptr;
  for (const auto& [rank, waiting] : attempt.waiting()) {
    if (settled != nullptr && *settled == waiting.layout_id) continue;
    if (find_layout(attempt, waiting.layout_id)) {
      settled = &waiting.layout_id;
      continue;
    }
    all = false;
    layouts_.await(waiting.layout_id);
    // Requested from one node; from another if that one is lost; again after the node repeats LayoutsStaged.
    if (layouts_.must_request(waiting.layout_id, waiting.node, nodes_)) {
      wanted[waiting.node].push_back(waiting.layout_id);
    } else {
      settled = &waiting.layout_id;
    }
  }
  for (auto& [node, ids] : wanted) out.send(node, RoleKind::planner, wire::LayoutRequest{std::move(ids)});
  return all;
}

void Coordinator::forget_layouts() {
  if (layouts_.empty()) return;
  std::set<LayoutId> awaited;
  for (const auto& [key, attempt] : attempts_) {
    for (const auto& [rank, waiting] : attempt.waiting()) awaited.insert(waiting.layout_id);
  }
  layouts_.keep_only(awaited);
}

std::vector<uint32_t> Coordinator::hosts() const {
  const auto& newest = rosters_.newest();
  if (!newest && !collective_) return gathering_.hosts();
  std::vector<uint32_t> numbers;
  std::map<std::string, uint32_t> named;
  for (Rank rank = 0; rank < world_size(); ++rank) {
    numbers.push_back(newest ? newest->world().roster.host_of(rank)
                             : named.try_emplace(collective_->host_of.at(rank), named.size()).first->second);
  }
  return numbers;
}

Result<std::shared_ptr<const World>> Coordinator::world_of(const Attempt& attempt) const {
  std::vector<LayoutId> layouts;
  for (Rank rank = 0; rank < world_size(); ++rank) {
    auto waiting = attempt.waiting().find(rank);
    // Some ranks wait for plans, and this one does not.
    if (!rosters_.newest() && collective_ && !collective_->host_of.contains(rank)) {
      return Status(Code::invalid_argument, presence_.name_ranks({rank}) +
                                                " saves in another mode than host " +
                                                collective_->first_host + ", which saves in mode collective");
    }
    layouts.push_back(waiting != attempt.waiting().end()
                          ? waiting->second.layout_id
                          : attempt.reported().at(rank).under->world().layout_of(rank).id());
  }
  auto world = std::make_shared<World>();
  SHOAL_ASSIGN_OR_RETURN(world->roster, Roster::make(layouts, hosts()));
  for (const LayoutId& id : world->roster.layout_ids()) world->layouts.push_back(find_layout(attempt, id));
  SHOAL_RETURN_IF_ERROR(validate_world(*world));
  SHOAL_RETURN_IF_ERROR(check_coverage(*world, options()));
  if (options().mode != SaveMode::collective) {
    SHOAL_RETURN_IF_ERROR(check_roster_fits(*world, config_.message_bytes_max));
  }
  return std::shared_ptr<const World>(std::move(world));
}

void Coordinator::make_roster(Attempt& attempt, EffectWriter& out) {
  auto world = world_of(attempt);
  if (!world.ok()) {
    return abort(attempt, GiveUp::contradiction,
                 "cannot make a roster of the layouts of this save: " + world.status().message(), out);
  }
  if (auto known = rosters_.find((*world)->roster.id())) return adopt_roster(attempt, known, out);
  attempt.on(AttemptTrigger::layouts_known);
  // In mode collective, or if the layouts that the ranks declared first make none.
  const bool is_first = !rosters_.newest();
  publish_roster(attempt.id(), {config_.generation, {*world, options(), kRuleVersion}, is_first}, out);
}

void Coordinator::publish_roster(const AttemptId& id, const operation::PublishRoster& made,
                                 EffectWriter& out) {
  if_not_superseded(out, [this, id, made](TimeNs, EffectWriter& then_out) {
    operations_.start(
        made, then_out,
        [this, id, made](TimeNs now, Result<storage::RosterRecord> published, EffectWriter& last_out) {
          with_attempt(id,
                       [&](Attempt& waiting) { roster_published(now, waiting, made, published, last_out); });
        });
  });
}

void Coordinator::roster_published(TimeNs now, Attempt& attempt, const operation::PublishRoster& made,
                                   const Result<storage::RosterRecord>& published, EffectWriter& out) {
  if (!published.ok()) {
    attempt.roster_failure = published.status().with_context("cannot publish its roster");
    const auto again = [this, made](Attempt& waiting, EffectWriter& then_out) {
      base::rare_path<"coordinator: publishes a later roster again">();
      if (waiting.may(AttemptTrigger::roster_known)) publish_roster(waiting.id(), made, then_out);
    };
    if (try_again(now, attempt.id(), attempt.roster_retries, attempt.roster_failure, out, again)) return;
    return abort(attempt, GiveUp::root_unreliable, attempt.roster_failure.message(), out);
  }
  attempt.roster_failure = ok_status();
  const RosterId& id = published->world->roster.id();
  if (id != made.record.world->roster.id()) {
    base::rare_path<"coordinator: another roster was published">();
    if (attempt.may(AttemptTrigger::other_roster_published)) {
      attempt.on(AttemptTrigger::other_roster_published);
    }
    if (!rosters_.newest()) adopt_first_roster(now, *published, out);
    return consider(attempt, out);
  }
  auto known = rosters_.find(id);  // another attempt may have the same roster
  adopt_roster(attempt,
               known ? known : std::make_shared<ExpectedPlans>(config_, published->world, published->options),
               out);
}

void Coordinator::adopt_roster(Attempt& attempt, const std::shared_ptr<ExpectedPlans>& roster,
                               EffectWriter& out) {
  make_newest(roster, out);
  newest_made_by_ = attempt.id().number;
  if (!attempt.may(AttemptTrigger::roster_known)) return;  // given up meanwhile
  if (Status fits = attempt.adopt_roster(roster); !fits.ok()) {
    return abort(attempt, GiveUp::contradiction, fits.message(), out);
  }
  std::set<NodeId> have_staged, await_plans;
  for (const auto& [rank, waiting] : attempt.waiting()) {
    if (!waiting.has_staged) {
      await_plans.insert(waiting.node);
    } else if (have_staged.insert(waiting.node).second) {
      out.send(waiting.node, RoleKind::shard_writer,
               wire::AttemptRoster{attempt.key(), roster->world().roster.id()});
    }
  }
  for (NodeId node : await_plans) send_global_plan(attempt, node, out);
  consider(attempt, out);
}

}  // namespace shoal::actors
