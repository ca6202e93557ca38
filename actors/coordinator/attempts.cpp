// Coordinator: attempts, from the first message about one until its decision is sent.
#include <algorithm>
#include <utility>

#include "actors/coordinator/coordinator.h"
#include "base/rank_names.h"

namespace shoal::actors {

namespace {

size_t size_of(const wire::ShardsWritten& report) {
  return sizeof(report) + report.plans.size() * sizeof(wire::RankPlan) +
         report.files.size() * sizeof(wire::WrittenFile) + (report.user ? kMaxUserMetadataBytes : 0);
}

}  // namespace

bool Coordinator::answer_decided(NodeId to, const AttemptKey& key, EffectWriter& out) {
  auto found = decided_.find(key);
  if (found == decided_.end()) return false;
  const Outcome& outcome = found->second;
  if (!outcome.undecided.ok()) {
    out.send(to, RoleKind::shard_writer, wire::Undecided{key, outcome.undecided});
    return true;
  }
  out.send(to, RoleKind::shard_writer, wire::Decided{key, outcome.committed, outcome.cause});
  if (!outcome.committed) sweep(key, out);  // the node may have written more since the last sweep
  return true;
}

Coordinator::Attempt* Coordinator::open_attempt(TimeNs now, const AttemptKey& key, EffectWriter& out) {
  if (key.generation != facts_.generation) return nullptr;
  auto found = attempts_.find(key);
  if (found != attempts_.end()) return &found->second;
  if (attempts_.size() >= kMaxAttemptsInFlight) return nullptr;  // reports are sent again
  Attempt& attempt = attempts_.emplace(key, Attempt(now, facts_.times)).first->second;
  await_news(key, attempt, out);
  // An earlier coordinator or a node may have decided it.
  operations_.start(operation::ReadDecision{key}, out,
                    [this, key](TimeNs then_now, Result<OperationResult> result, EffectWriter& then_out) {
                      auto decision = result_as<std::shared_ptr<const storage::Decision>>(std::move(result));
                      if (decision.ok()) return decided(key, *decision, then_out);
                      auto open = attempts_.find(key);
                      if (open == attempts_.end() || open->second.phase != Phase::asking) return;
                      open->second.phase = Phase::gathering;
                      take_early(then_now, key, then_out);
                    });
  return &attempt;
}

void Coordinator::await_news(const AttemptKey& key, Attempt& attempt, EffectWriter& out) {
  attempt.deadline =
      timers_.set(attempt.last_news + facts_.times.attempt_deadline_ms * kMillisecond, out,
                  [this, key](TimeNs now, EffectWriter& then_out) { deadline_passed(now, key, then_out); });
}

void Coordinator::on_written(TimeNs now, NodeId from, const wire::ShardsWritten& report, EffectWriter& out) {
  nodes_.insert(from);
  std::vector<Rank> ranks;
  for (const wire::RankPlan& plan : report.plans) ranks.push_back(plan.rank);
  heard_of(from, ranks);
  if (answer_decided(from, report.key, out)) return;
  Attempt* attempt = open_attempt(now, report.key, out);
  if (attempt == nullptr) return;
  out.send(from, RoleKind::shard_writer, wire::Pending{report.key});
  if (attempt->phase == Phase::publishing) return;
  if (attempt->phase == Phase::asking || !plans_) {
    keep_early(now, *attempt, from, report);
  } else {
    take(now, from, report, out);
  }
  look_for_gone(now, report.key, out);
}

// A later report of a node under one roster contains its earlier ones.
void Coordinator::keep_early(TimeNs now, Attempt& attempt, NodeId from, const wire::ShardsWritten& report) {
  const std::pair name(from, report.roster_id);
  auto kept = attempt.early.find(name);
  const size_t kept_bytes = kept == attempt.early.end() ? 0 : size_of(kept->second);
  if (early_bytes_ - kept_bytes + size_of(report) > kMaxEarlyReportBytes) return;
  early_bytes_ += size_of(report) - kept_bytes;
  if (size_of(report) > kept_bytes) attempt.last_news = now;
  attempt.early.insert_or_assign(name, report);
}

void Coordinator::forget_early(Attempt& attempt) {
  for (const auto& [node, report] : attempt.early) early_bytes_ -= size_of(report);
  attempt.early.clear();
}

void Coordinator::take_early(TimeNs now, const AttemptKey& key, EffectWriter& out) {
  auto found = attempts_.find(key);
  if (found == attempts_.end() || found->second.phase != Phase::gathering) return;
  if (plans_) {
    for (const auto& [from, report] : found->second.early) early_bytes_ -= size_of(report);
    const auto early = std::exchange(found->second.early, {});
    for (const auto& [from, report] : early) take(now, from.first, report, out);
  }
  consider_complete(key, out);
}

void Coordinator::take(TimeNs now, NodeId from, const wire::ShardsWritten& report, EffectWriter& out) {
  auto found = attempts_.find(report.key);
  if (found == attempts_.end() || found->second.phase != Phase::gathering) return;
  Attempt& attempt = found->second;
  std::shared_ptr<ExpectedPlans> under = find_roster(report.roster_id);
  if (!under) {
    keep_early(now, attempt, from, report);
    return read_roster(report.roster_id, out);
  }
  if (Status status = under->check(report); !status.ok())
    return abort(report.key, GiveUp::contradiction, status.message(), out);
  if (Status same = take_user(attempt, report); !same.ok())
    return abort(report.key, GiveUp::contradiction, same.message(), out);
  for (const wire::RankPlan& plan : report.plans) {
    auto [reported, fresh] = attempt.reported.try_emplace(plan.rank, Reported{under, {}});
    attempt.waiting.erase(plan.rank);
    if (fresh) attempt.last_news = now;
    if (!fresh || !attempt.named) continue;
    Status fits = check_share(*attempt.named, reported->second, plan.rank);
    if (!fits.ok()) return abort(report.key, GiveUp::contradiction, fits.message(), out);
  }
  for (const wire::WrittenFile& file : report.files) {
    auto& files = attempt.reported[file.rank].files;
    if (files.size() == file.index) files.push_back(file);
  }
  consider_complete(report.key, out);
}

Status Coordinator::take_user(Attempt& attempt, const wire::ShardsWritten& report) {
  if (report.plans.empty()) return ok_status();
  const Rank rank = report.plans.front().rank;
  if (!attempt.user) attempt.user.emplace(rank, report.user);
  const auto& [first, user] = *attempt.user;
  if (user == report.user) return ok_status();
  return check_same_user_metadata(first, or_none(user), rank, or_none(report.user));
}

std::vector<AttemptKey> Coordinator::open_keys() const {
  std::vector<AttemptKey> keys;
  for (const auto& [key, attempt] : attempts_) keys.push_back(key);
  return keys;
}

void Coordinator::commit(const AttemptKey& key, Attempt& attempt, const ExpectedPlans& under,
                         EffectWriter& out) {
  attempt.phase = Phase::publishing;
  auto made = std::make_shared<storage::DecisionBody>(std::in_place_type<storage::Manifest>);
  storage::Manifest& manifest = std::get<storage::Manifest>(*made);
  manifest.world = under.world_ptr();
  manifest.options = under.options();
  if (attempt.user) manifest.user = or_none(attempt.user->second);
  manifest.files.reserve(attempt.reported.size());  // most ranks have one file
  for (const auto& [rank, reported] : attempt.reported) {
    for (const wire::WrittenFile& file : reported.files) {
      manifest.files.push_back(
          {shard_file_name(rank, file.index), file.size, file.header_digest, rank, file.index});
      manifest.payload_bytes += file.payload_bytes;
    }
  }
  if (manifest.files.empty()) {
    attempt.phase = Phase::gathering;
    return abort(key, GiveUp::contradiction, "no rank holds anything that is to be saved", out);
  }
  auto files = std::shared_ptr<const std::vector<storage::FileEntry>>(made, &manifest.files);
  operations_.start(operation::CheckFiles{key, std::move(files)}, out,
                    [this, key, body = std::shared_ptr<const storage::DecisionBody>(std::move(made))](
                        TimeNs, Result<OperationResult> result, EffectWriter& then_out) {
                      auto found = attempts_.find(key);
                      if (found == attempts_.end()) return;
                      if (Status status = result.status(); !status.ok()) {
                        found->second.phase = Phase::gathering;
                        return abort(key, GiveUp::files_differ, status.message(), then_out);
                      }
                      if_in_office(then_out, [this, key, body](TimeNs, EffectWriter& last_out) {
                        publish({key, body}, last_out);
                      });
                    });
}

void Coordinator::abort(const AttemptKey& key, GiveUp why, const std::string& cause, EffectWriter& out) {
  auto found = attempts_.find(key);
  if (found == attempts_.end() || found->second.phase == Phase::publishing) return;
  found->second.phase = Phase::publishing;
  if_in_office(out, [this, key, why, cause](TimeNs, EffectWriter& then_out) {
    publish(abort_of(key, why, cause.substr(0, storage::kMaxCauseBytes)), then_out);
  });
}

void Coordinator::publish(const operation::PublishDecision& made, EffectWriter& out) {
  operations_.start(made, out,
                    [this, made](TimeNs now, Result<OperationResult> result, EffectWriter& then_out) {
                      auto decision = result_as<std::shared_ptr<const storage::Decision>>(std::move(result));
                      if (!decision.ok()) return publish_failed(now, made, decision.status(), then_out);
                      const auto* tombstone = std::get_if<storage::Tombstone>(made.body.get());
                      if (tombstone != nullptr && (*decision)->committed()) {
                        then_out.warning(to_string(made.key) + ": " + tombstone->cause +
                                         "; it is committed all the same: the root holds all of it");
                      }
                      decided(made.key, *decision, then_out);
                    });
}

// The state of the root is unknown. Publishing again under the same name is safe.
void Coordinator::publish_failed(TimeNs now, const operation::PublishDecision& made, const Status& why,
                                 EffectWriter& out) {
  const AttemptKey& key = made.key;
  auto found = attempts_.find(key);
  if (found == attempts_.end()) return;
  PublishRetries& retries = found->second.retries;
  const auto* abort = std::get_if<storage::Tombstone>(made.body.get());
  // Trainers must soon learn of a failed save, even if the abort cannot be recorded.
  const TimeNs again_at =
      abort == nullptr ? retries.next_at(now, why) : retries.next_at(now, why, kAbortPatience);
  if (again_at == 0) {
    return leave_undecided(
        key, abort == nullptr ? why : Status(why.code(), abort->cause + "; " + why.message()), out);
  }
  out.warning(to_string(key) + ": " + why.to_string());
  timers_.set(again_at, out, [this, made](TimeNs, EffectWriter& retry_out) {
    if (attempts_.contains(made.key)) publish(made, retry_out);
  });
}

// Each node then publishes a tombstone itself, or reports to its clients why no decision is possible.
void Coordinator::leave_undecided(const AttemptKey& key, const Status& why, EffectWriter& out) {
  close_attempt(key, out);
  const Outcome outcome{false, "", why.with_context("no decision could be published")};
  decided_.put(key, outcome);
  tell(key, outcome, out);
  out.warning(to_string(key) + " is left undecided: " + outcome.undecided.to_string());
}

void Coordinator::on_failed(TimeNs now, NodeId from, const wire::SaveFailed& failed, EffectWriter& out) {
  nodes_.insert(from);
  if (answer_decided(from, failed.key, out)) return;
  Attempt* attempt = open_attempt(now, failed.key, out);
  if (attempt == nullptr || attempt->phase == Phase::publishing) return;
  abort(failed.key, give_up_after(failed.why),
        "rank " + std::to_string(failed.rank) + ": " + failed.why.to_string(), out);
}

void Coordinator::deadline_passed(TimeNs now, const AttemptKey& key, EffectWriter& out) {
  auto found = attempts_.find(key);
  if (found == attempts_.end()) return;
  found->second.deadline = 0;
  if (found->second.last_news + facts_.times.attempt_deadline_ms * kMillisecond > now) {
    return await_news(key, found->second, out);
  }
  abort(key, GiveUp::deadline,
        what_is_missing(found->second) + " within " + human_seconds(facts_.times.attempt_deadline_ms / 1e3),
        out);
}

std::string Coordinator::what_is_missing(const Attempt& attempt) const {
  if (world_size() == 0) {
    return "no roster: " + gathering_.what_is_missing();
  }
  if (attempt.exchange && attempt.exchange->made.size() < world_size()) return what_planners_lack(attempt);
  std::vector<Rank> missing;
  for (Rank rank = 0; rank < world_size(); ++rank) {
    if (!has_spoken(attempt, rank)) missing.push_back(rank);
  }
  const bool asked = std::any_of(attempt.waiting.begin(), attempt.waiting.end(),
                                 [](const auto& each) { return !each.second.has_staged; });
  if (missing.empty() && asked) {
    return "rank " + std::to_string(attempt.waiting.begin()->first) +
           (attempt.named ? " was told what to write and did not report"
                          : " could not be told what to write");
  }
  if (missing.empty() && !attempt.waiting.empty()) {
    return "rank " + std::to_string(attempt.waiting.begin()->first) +
           " staged another layout than before and " +
           (attempt.named ? "did not write its share of it" : "no roster with it could be made");
  }
  const bool said_nothing = asked && !attempt.named;
  return base::name_ranks(missing) + (!said_nothing         ? " did not report"
                                      : missing.size() == 1 ? " did not say what it holds"
                                                            : " did not say what they hold");
}

void Coordinator::close_attempt(const AttemptKey& key, EffectWriter& out) {
  auto found = attempts_.find(key);
  timers_.cancel(&found->second.deadline, out);
  forget_early(found->second);
  told_plans_.forget_if([&](const auto& told) { return told.first == key; });
  attempts_.erase(found);
  forget_staged_layouts();
}

void Coordinator::decided(const AttemptKey& key, const std::shared_ptr<const storage::Decision>& decision,
                          EffectWriter& out) {
  if (!attempts_.contains(key)) return;
  close_attempt(key, out);
  const bool was_committed = decision->was_committed();
  const Outcome outcome{was_committed, was_committed ? "" : decision->tombstone().cause, {}};
  decided_.put(key, outcome);
  ++telling_;
  operations_.start(operation::RecordDecision{decision}, out,
                    [this, key, outcome](TimeNs now, Result<OperationResult> result, EffectWriter& then_out) {
                      --telling_;
                      if (!result.ok()) {
                        // The catalog is an index of the root: the decision counts without it.
                        then_out.warning("catalog: " + result.status().to_string());
                      }
                      tell(key, outcome, then_out);
                      then_out.info(to_string(key) + (outcome.committed ? std::string(" is committed")
                                                                        : " is aborted: " + outcome.cause));
                      if (outcome.committed) return retention_.committed(then_out);
                      sweep(key, then_out);
                      sweep_later(now, key, then_out);
                    });
}

void Coordinator::tell(const AttemptKey& key, const Outcome& outcome, EffectWriter& out) {
  for (NodeId node : nodes_) {
    if (outcome.undecided.ok()) {
      out.send(node, RoleKind::shard_writer, wire::Decided{key, outcome.committed, outcome.cause});
    } else {
      out.send(node, RoleKind::shard_writer, wire::Undecided{key, outcome.undecided});
    }
  }
}

}  // namespace shoal::actors
