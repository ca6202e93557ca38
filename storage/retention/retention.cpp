#include "storage/retention/retention.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "storage/root/attempt_listing_internal.h"

namespace shoal::storage {

namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

// Everything in a root that keeps checkpoints regardless of the policy.
struct Keepers {
  std::map<AttemptKey, std::string> named;  // by a pin, a tag or the live generation
  std::set<AttemptKey> leased, verified;
  uint32_t live_generation = 0;
};

std::optional<AttemptKey> key_of_verified(const std::string& name) {
  size_t dot = name.find('.');
  std::optional<uint64_t> step = parse_step_folder(name.substr(0, dot));
  if (!step || dot == std::string::npos) return std::nullopt;
  return parse_attempt_folder(*step, name.substr(dot + 1));
}

// Whether remains are those of an attempt under a lease: `shoal copy` holds one on what it writes.
bool is_of_pinned(const Keepers& keepers, const std::string& folder) {
  const size_t slash = folder.find('/');
  const size_t dot = folder.find('.', slash);
  const std::optional<uint64_t> step = parse_step_folder(folder.substr(0, slash));
  if (slash == std::string::npos || dot == std::string::npos || !step) return false;
  const auto key = parse_attempt_folder(*step, folder.substr(slash + 1, dot - slash - 1));
  return key && keepers.leased.contains(*key);
}

Status refuse_damaged(const MarkList& list) {
  if (list.damaged.empty()) return ok_status();
  return list.damaged.front().second.with_context(
      "retention deletes nothing while it cannot read what this mark keeps; remove the mark if it keeps "
      "nothing");
}

Result<Keepers> read_keepers(Storage& storage, RetentionPlan* plan) {
  Keepers keepers;
  SHOAL_ASSIGN_OR_RETURN(LiveGeneration live, read_live_generation(storage));
  keepers.live_generation = live.generation;
  for (const AttemptKey& key : live.loaded) {
    keepers.named.emplace(key, fmt::format("generation {} began with it", live.generation));
  }
  SHOAL_ASSIGN_OR_RETURN(MarkList pins, list_marks(storage, MarkKind::pin));
  SHOAL_ASSIGN_OR_RETURN(MarkList tags, list_marks(storage, MarkKind::tag));
  SHOAL_ASSIGN_OR_RETURN(MarkList verified, list_marks(storage, MarkKind::verified));
  SHOAL_RETURN_IF_ERROR(refuse_damaged(pins));
  SHOAL_RETURN_IF_ERROR(refuse_damaged(tags));
  for (const Mark& pin : pins.marks) {
    keepers.named.emplace(pin.key, (pin.is_lease ? "being loaded: " : "pinned: ") + pin.name);
    if (!pin.is_lease) continue;
    keepers.leased.insert(pin.key);
    plan->leases.push_back(pin);
  }
  for (const Mark& tag : tags.marks) keepers.named.emplace(tag.key, "tagged " + tag.name);
  for (const Mark& mark : verified.marks) keepers.verified.insert(mark.key);
  // The name of a mark that cannot be read now still identifies its checkpoint.
  for (const auto& [name, why] : verified.damaged) {
    if (std::optional<AttemptKey> key = key_of_verified(name)) keepers.verified.insert(*key);
  }
  return keepers;
}

// Walks the attempts from the newest down.
class Planner {
 public:
  // `listed`: of a storage that lists trees; otherwise nullptr.
  Planner(Storage& storage, const RetentionPolicy& policy, int64_t unix_time_ns, KnownAttempts* known,
          const ListedAttempts* listed, RetentionPlan* plan)
      : storage_(storage),
        policy_(policy),
        now_ns_(unix_time_ns),
        known_(known),
        listed_(listed),
        plan_(plan) {}

  Status run(const Keepers& keepers, const AttemptNames& names) {
    if (known_ != nullptr) {
      std::erase_if(known_->attempts, [&](const auto& known) {
        return !std::binary_search(names.keys.begin(), names.keys.end(), known.first);
      });
    }
    for (auto key = names.keys.rbegin(); key != names.keys.rend(); ++key) {
      SHOAL_RETURN_IF_ERROR(look(keepers, *key));
    }
    std::reverse(plan_->keep.begin(), plan_->keep.end());
    std::reverse(plan_->remove.begin(), plan_->remove.end());
    return ok_status();
  }

 private:
  Status look(const Keepers& keepers, const AttemptKey& key) {
    // Reads again what decides the newest ones, because another process may have deleted them since.
    bool must_be_fresh =
        checkpoints_ < std::max<uint64_t>(policy_.keep_last, 1) || keepers.verified.contains(key);
    if (known_ != nullptr) {
      auto found = known_->attempts.find(key);
      if (found != known_->attempts.end()) {
        const AttemptInfo::State state = found->second.state;
        if (state == AttemptInfo::State::aborted) return ok_status();
        if (state == AttemptInfo::State::deleted) return tombstone_of_deleted(key, true);
        if (!must_be_fresh) return checkpoint(keepers, key);
      }
    }
    auto info = listed_ != nullptr ? inspect_listed(storage_, key, listed_->files.at(key))
                                   : inspect_attempt(storage_, key);
    if (!info.ok()) {
      if (info.status().code() != Code::not_found) plan_->damaged.emplace_back(key, info.status());
      return ok_status();
    }
    switch (info->state) {
      case AttemptInfo::State::committed:
        if (info->to_sweep()) plan_->sweep.push_back(key);
        if (known_ != nullptr) known_->attempts[key].state = info->state;
        return checkpoint(keepers, key);
      case AttemptInfo::State::deleted:
        return tombstone_of_deleted(key, info->leftover_files == 0);
      case AttemptInfo::State::aborted:
        if (info->to_sweep()) {
          plan_->sweep.push_back(key);
        } else if (known_ != nullptr) {
          known_->attempts[key].state = info->state;
        }
        return ok_status();
      case AttemptInfo::State::undecided:
        break;
    }
    if (info->leftover_files == 0) {
      const bool is_copy = info->files_bytes != 0;  // an unfinished one, which `shoal copy` continues
      if (!is_copy) plan_->remains.push_back(attempt_folder(key));
    } else if (key.generation < keepers.live_generation) {
      plan_->undecided.push_back(*info);
    }
    return ok_status();
  }

  // is_alone: nothing else remains of the checkpoint.
  Status tombstone_of_deleted(const AttemptKey& key, bool is_alone) {
    const bool stays = !storage_.moves_folders() || tombstones_++ < policy_.keep_tombstones;
    if (known_ != nullptr) known_->attempts.erase(key);
    if (stays && is_alone) {
      if (known_ != nullptr) known_->attempts[key].state = AttemptInfo::State::deleted;
      return ok_status();
    }
    (stays || policy_.keep_tombstones == 0 ? plan_->finish : plan_->forget).push_back(key);
    return ok_status();
  }

  Status checkpoint(const Keepers& keepers, const AttemptKey& key) {
    if (may_stand_for_others(keepers, key) && !reads_back(key)) return ok_status();
    SHOAL_ASSIGN_OR_RETURN(std::string why, why_kept(keepers, key));
    ++checkpoints_;
    auto& list = why.empty() ? plan_->remove : plan_->keep;
    list.push_back({key, why.empty() ? "no rule keeps it: " + describe_policy() : why});
    return ok_status();
  }

  // Whether other checkpoints may be deleted because this one stays.
  bool may_stand_for_others(const Keepers& keepers, const AttemptKey& key) const {
    return checkpoints_ < std::max<uint64_t>(policy_.keep_last, 1) ||
           (!seen_verified_ && keepers.verified.contains(key)) ||
           (policy_.keep_every != 0 && key.step % policy_.keep_every == 0 && !steps_.contains(key.step));
  }

  // false: it is damaged and listed in plan_->damaged, or it no longer exists.
  bool reads_back(const AttemptKey& key) {
    if (known_ != nullptr && known_->attempts[key].reads_back) return true;
    auto decision = read_decision(storage_, key);
    if (decision.ok() && decision->committed()) {
      if (known_ != nullptr)
        known_->attempts[key] = {AttemptInfo::State::committed, decision->unix_time_ns, true};
      return true;
    }
    if (known_ != nullptr) known_->attempts.erase(key);
    if (!decision.ok() && decision.status().code() != Code::not_found) {
      plan_->damaged.emplace_back(key, decision.status());
    }
    return false;
  }

  Result<std::string> why_kept(const Keepers& keepers, const AttemptKey& key) {
    bool is_newest_of_step =
        policy_.keep_every != 0 && key.step % policy_.keep_every == 0 && steps_.insert(key.step).second;
    bool is_newest_verified = !seen_verified_ && keepers.verified.contains(key);
    seen_verified_ = seen_verified_ || is_newest_verified;
    if (checkpoints_ == 0) return std::string("the newest");
    if (is_newest_verified) return std::string("the newest that was verified");
    if (auto named = keepers.named.find(key); named != keepers.named.end()) return named->second;
    if (!policy_.any()) return std::string("no rule is set");
    if (checkpoints_ < policy_.keep_last) return fmt::format("one of the last {}", policy_.keep_last);
    if (is_newest_of_step) return fmt::format("its step is a multiple of {}", policy_.keep_every);
    if (policy_.keep_for_s != 0) {
      SHOAL_ASSIGN_OR_RETURN(int64_t committed_ns, time_of(key));
      if (committed_ns == 0 ||
          (now_ns_ - committed_ns) / kSecondNs < static_cast<int64_t>(policy_.keep_for_s)) {
        return fmt::format("committed less than {} s ago", policy_.keep_for_s);
      }
    }
    return std::string();
  }

  // 0: unknown.
  Result<int64_t> time_of(const AttemptKey& key) {
    KnownAttempts::Known* known = nullptr;
    if (known_ != nullptr) known = &known_->attempts[key];
    if (known != nullptr && known->unix_time_ns != 0) return known->unix_time_ns;
    auto decision = read_decision(storage_, key);
    if (!decision.ok()) {
      plan_->damaged.emplace_back(key, decision.status());
      return 0;
    }
    if (known != nullptr) *known = {AttemptInfo::State::committed, decision->unix_time_ns, true};
    return decision->unix_time_ns;
  }

  std::string describe_policy() const {
    std::string text;
    if (policy_.keep_last != 0) text += fmt::format(" keep-last {}", policy_.keep_last);
    if (policy_.keep_every != 0) text += fmt::format(" keep-every {}", policy_.keep_every);
    if (policy_.keep_for_s != 0) text += fmt::format(" keep-for {}s", policy_.keep_for_s);
    return text.empty() ? text : text.substr(1);
  }

  Storage& storage_;
  const RetentionPolicy& policy_;
  const int64_t now_ns_;
  KnownAttempts* known_;
  const ListedAttempts* listed_;
  RetentionPlan* plan_;
  uint64_t checkpoints_ = 0;  // counted so far
  uint64_t tombstones_ = 0;   // of deleted checkpoints, counted so far
  bool seen_verified_ = false;
  std::set<uint64_t> steps_;  // steps of which keep_every has kept a checkpoint
};

}  // namespace

Result<RetentionPlan> plan_retention(Storage& storage, const RetentionPolicy& policy, int64_t unix_time_ns,
                                     KnownAttempts* known) {
  RetentionPlan plan;
  // Lists names first. An attempt that is committed after this is newer than all of them, and the plan
  // ignores it.
  ListedAttempts listed;
  const bool lists_trees = storage.lists_trees();
  if (lists_trees) {
    SHOAL_ASSIGN_OR_RETURN(listed, list_tree_of_attempts(storage, TreeDepth::objects));
  } else {
    SHOAL_ASSIGN_OR_RETURN(listed.names, list_attempt_names(storage));
  }
  AttemptNames& names = listed.names;
  if (!names.unreadable.empty()) return names.unreadable.front().second;
  SHOAL_ASSIGN_OR_RETURN(Keepers keepers, read_keepers(storage, &plan));
  SHOAL_RETURN_IF_ERROR(Planner(storage, policy, unix_time_ns, known, lists_trees ? &listed : nullptr, &plan)
                            .run(keepers, names));
  for (std::string& folder : names.remains) {
    if (!is_of_pinned(keepers, folder)) plan.remains.push_back(std::move(folder));
  }
  return plan;
}

std::vector<Mark> LeaseWatch::ended(const Reading& read, int64_t ttl_ns, const std::vector<Mark>& leases) {
  std::map<std::string, Seen> seen;
  std::vector<Mark> out;
  for (const Mark& lease : leases) {
    Seen now = {lease.counter, read.ended_ns};
    if (auto before = seen_.find(lease.name);
        before != seen_.end() && before->second.counter == lease.counter) {
      now.since_ns = before->second.since_ns;
    }
    if (read.began_ns - now.since_ns >= ttl_ns) out.push_back(lease);
    seen.emplace(lease.name, now);
  }
  seen_ = std::move(seen);
  return out;
}

}  // namespace shoal::storage
