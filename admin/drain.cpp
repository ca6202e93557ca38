#include "admin/drain.h"

#include <fmt/format.h>

#include <algorithm>

#include "admin/newest_of_both.h"

namespace shoal::admin {

void Drain::Pause::extend(int64_t now_ns) {
  length_ns = std::clamp(2 * length_ns, kFirstDrainPauseNs, kLongestDrainPauseNs);
  ends_at_ns = now_ns + length_ns;
}

// A folder is opened again by each look, because another one may have been made or mounted in its place.
Status Drain::open_roots() {
  if (!source_ || source_->storage->has_files()) {
    SHOAL_ASSIGN_OR_RETURN(OpenRoot source, open_source_());
    const bool is_another = source_id_ && source.id != *source_id_;
    if (is_another) settled_.clear(), reported_.clear();
    source_id_ = source.id;
    source_ = std::move(source);
  }
  if (target_ && !target_->storage->has_files()) return ok_status();
  SHOAL_ASSIGN_OR_RETURN(OpenRoot target, open_target_());
  if (target_id_ && target.id != *target_id_) {
    return Status(Code::refused, fmt::format("{} is not the root that it was when the command began: is the "
                                             "storage mounted?",
                                             target.storage->describe()));
  }
  if (!target_) {
    // Else the rules might delete the newest checkpoint of another job.
    SHOAL_ASSIGN_OR_RETURN(const NewestOfBoth both, compare_newest(*source_, target));
    SHOAL_RETURN_IF_ERROR(both.is_one_line);
    SHOAL_ASSIGN_OR_RETURN(const storage::AttemptList there, storage::list_attempt_states(*target.storage));
    at_target_.clear();
    for (const storage::AttemptInfo& info : there.attempts) {
      if (info.state == storage::AttemptInfo::State::committed) at_target_.insert(info.key);
    }
  }
  target_id_ = target.id;
  target_ = std::move(target);
  return ok_status();
}

void Drain::close_roots() {
  source_.reset();
  target_.reset();
  known_ = {};
  leases_ = {};
  pause_.extend(options_.now_ns());
  resumes_at_ns_ = pause_.ends_at_ns;
}

Status Drain::want(const AttemptKey& key) {
  Wanted wanted;
  if (options_.retention.keep_for_s != 0) {
    auto decision = storage::read_decision(*source_->storage, key);
    // A rank-local save that nobody has merged has no decision yet, so it is new.
    const bool is_new = decision.status().code() == Code::not_found;
    if (!decision.ok() && !is_new) return decision.status();
    wanted.committed_ns = is_new ? unix_time_now_ns() : decision->unix_time_ns;
  }
  wanted_.emplace(key, wanted);
  return ok_status();
}

Status Drain::find_new(const storage::AttemptNames& names, DrainNews* news) {
  std::vector<std::pair<AttemptKey, Status>> unreadable = names.unreadable;
  for (const AttemptKey& key : names.keys) {
    if (settled_.contains(key) || wanted_.contains(key)) continue;
    const auto info = storage::inspect_attempt(*source_->storage, key);
    Status read = info.status();
    if (read.code() == Code::not_found) continue;  // another process has removed it
    if (read.ok()) {
      const auto state = info->state;
      if (state == storage::AttemptInfo::State::committed || info->is_complete_set()) {
        read = want(key);
      } else if (state != storage::AttemptInfo::State::undecided) {
        settled_.insert(key);
      }
    }
    if (!read.ok()) unreadable.emplace_back(key, read);
  }
  news->unreadable_now = unreadable.size();
  for (auto& each : unreadable) {
    if (reported_.insert(each.first).second) news->unreadable.push_back(std::move(each));
  }
  return ok_status();
}

// As plan_retention, of the checkpoints that the target would have if all were copied. Those that it has
// count even if they are damaged, so this keeps no more than the plan does.
void Drain::pass_over_what_no_rule_keeps(DrainNews* news) {
  const storage::RetentionPolicy& policy = options_.retention;
  if (!policy.any()) return;
  std::set<AttemptKey> all = at_target_;
  for (const auto& [key, wanted] : wanted_) all.insert(key);
  std::set<uint64_t> steps;
  uint64_t newer = 0;
  for (auto key = all.rbegin(); key != all.rend(); ++key, ++newer) {
    const bool is_of_step =
        policy.keep_every != 0 && key->step % policy.keep_every == 0 && steps.insert(key->step).second;
    if (newer < std::max<uint64_t>(policy.keep_last, 1) || is_of_step) continue;
    const auto found = wanted_.find(*key);
    if (found == wanted_.end()) continue;
    const int64_t age_s = (unix_time_now_ns() - found->second.committed_ns) / 1'000'000'000;
    if (policy.keep_for_s != 0 && age_s < static_cast<int64_t>(policy.keep_for_s)) continue;
    if (!at_target_.contains(*key)) ++news->passed_over;
    settled_.insert(*key);
    wanted_.erase(found);
  }
}

Result<DrainNews> Drain::look() {
  DrainNews news;
  Status looked = open_roots();
  storage::AttemptNames names;
  if (looked.ok()) {
    auto listed = storage::list_attempt_names(*source_->storage);
    looked = listed.status();
    if (listed.ok()) names = std::move(*listed);
  }
  if (looked.ok()) looked = find_new(names, &news);
  if (!looked.ok()) {
    close_roots();
    return looked;
  }
  pass_over_what_no_rule_keeps(&news);
  for (auto each = wanted_.begin(); each != wanted_.end();) {
    const bool exists = std::binary_search(names.keys.begin(), names.keys.end(), each->first);
    if (!exists) news.lost.push_back(each->first);
    each = exists ? std::next(each) : wanted_.erase(each);
  }
  return news;
}

std::optional<AttemptKey> Drain::next() const {
  if (!source_ || !target_) return std::nullopt;
  const int64_t now_ns = options_.now_ns();
  for (auto each = wanted_.rbegin(); each != wanted_.rend(); ++each) {
    if (each->second.pause.ends_at_ns <= now_ns) return each->first;
  }
  return std::nullopt;
}

CopyResult Drain::copy(const AttemptKey& key, std::atomic<uint64_t>* bytes_done) {
  CheckpointCopier copier(*source_->storage, *target_->storage, target_->id,
                          {options_.jobs, options_.keeps_going});
  CopyResult result = copier.copy(key, bytes_done);
  using Outcome = CopyResult::Outcome;
  if (result.outcome == Outcome::failed && result.status.code() == Code::refused &&
      copier.is_deleted_there(key)) {
    result.outcome = Outcome::deleted_there;
  }
  if (result.outcome == Outcome::failed) {
    Pause& pause = wanted_[key].pause;
    // The process that has taken the copy shall have time to end it.
    if (result.status.code() == Code::busy) pause.length_ns = kLongestDrainPauseNs;
    pause.extend(options_.now_ns());
    if (result.ends_all && options_.keeps_going()) close_roots();
    return result;
  }
  pause_ = {};
  wanted_.erase(key);
  settled_.insert(key);
  if (result.outcome == Outcome::copied || result.outcome == Outcome::present) at_target_.insert(key);
  return result;
}

Status Drain::apply_rules(Collected* collected) {
  if (!options_.retention.any()) return ok_status();
  storage::Storage& target = *target_->storage;
  storage::LeaseWatch::Reading read{options_.now_ns()};
  auto plan = storage::plan_retention(target, options_.retention, unix_time_now_ns(), &known_);
  SHOAL_RETURN_IF_ERROR(plan.status());
  read.ended_ns = options_.now_ns();
  const int64_t ttl_ns = int64_t{options_.lease_ttl_ms} * 1'000'000;
  for (const storage::Mark& ended : leases_.ended(read, ttl_ns, plan->leases)) {
    SHOAL_RETURN_IF_ERROR(storage::remove_mark(target, storage::MarkKind::pin, ended.name));
  }
  Collector collector(*target_, {.wait = false});
  std::vector<storage::RetentionPlan::Item> doomed = std::move(plan->remove);
  for (const AttemptKey& key : plan->finish) doomed.push_back({key, kWhyFinished});
  collector.sweep_all(plan->sweep, collected);
  // What is pending may have an unfinished copy, which is continued.
  if (wanted_.empty()) collector.remove_all(plan->remains, collected);
  collector.delete_all(doomed, collected);
  for (const auto* gone : {&collected->deleted, &collected->held}) {
    for (const Collected::Item& item : *gone) at_target_.erase(item.key);
  }
  return ok_status();
}

size_t Drain::untried() const {
  return static_cast<size_t>(
      std::ranges::count_if(wanted_, [](const auto& each) { return each.second.pause.length_ns == 0; }));
}

void Drain::forget_failures() {
  pause_ = {};
  resumes_at_ns_ = 0;
  for (auto& [key, wanted] : wanted_) wanted.pause = {};
}

}  // namespace shoal::admin
