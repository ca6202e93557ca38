#include "actors/attempt_watch.h"

#include "actors/publishing.h"
#include "base/rare_path.h"
#include "storage/decisions/completion.h"

namespace shoal::actors {

storage::AttemptInfo::State state_of(const storage::Decision& decision) {
  if (decision.committed()) return storage::AttemptInfo::State::committed;
  return decision.tombstone().reason == storage::Tombstone::Reason::deleted
             ? storage::AttemptInfo::State::deleted
             : storage::AttemptInfo::State::aborted;
}

void AttemptWatch::watch(TimeNs now, const AttemptKey& key, TimeNs unchanged_for, std::string cause,
                         EffectWriter& out, Then then) {
  auto [found, fresh] = watched_.try_emplace(key);
  found->second.then.push_back(std::move(then));
  if (!fresh) return;
  found->second.unchanged_for = unchanged_for;
  found->second.since = now;
  found->second.cause = std::move(cause);
  look(key, out);
}

void AttemptWatch::look(const AttemptKey& key, EffectWriter& out) {
  operations_.start(operation::InspectAttempt{key}, out,
                    [this, key](TimeNs now, Result<storage::AttemptInfo> result, EffectWriter& then_out) {
                      looked(now, key, std::move(result), then_out);
                    });
}

void AttemptWatch::looked(TimeNs now, const AttemptKey& key, Result<storage::AttemptInfo> info,
                          EffectWriter& out) {
  if (info.status().code() == Code::not_found) {  // decided since, and deleted with its folder
    base::rare_path<"watch: an attempt is gone">();
    return finish(now, key, storage::AttemptInfo::State::deleted, out);
  }
  if (!info.ok()) return finish(now, key, info.status(), out);
  if (info->state != storage::AttemptInfo::State::undecided) return finish(now, key, info->state, out);
  Watched& watched = watched_.at(key);
  if (!watched.seen || watched.fingerprint != info->fingerprint) {
    if (watched.seen) base::rare_path<"watch: an attempt has changed since the last look">();
    watched.seen = true;
    watched.fingerprint = info->fingerprint;
    watched.since = now;
  }
  const bool is_over = now - watched.since >= watched.unchanged_for;
  if (info->is_complete_set() || is_over) return complete(key, is_over, out);
  look_later(now, key, out);
}

// `is_over`: the wait is over. An attempt that cannot be completed is aborted; the cause states what it
// lacked.
void AttemptWatch::complete(const AttemptKey& key, bool is_over, EffectWriter& out) {
  operations_.start(operation::CompleteAttempt{key}, out,
                    [this, key, is_over](TimeNs now, Result<DecisionPtr> decision, EffectWriter& then_out) {
                      if (decision.ok()) return finish(now, key, state_of(**decision), then_out);
                      const Status& why = decision.status();
                      Watched& watched = watched_.at(key);
                      const bool is_damaged = why.code() == Code::corrupt;
                      const std::string damage = is_damaged ? why.message() : "";
                      const bool stays_damaged = is_damaged && watched.damage == damage;
                      watched.damage = damage;
                      const bool is_known = storage::is_unproven(why);
                      if (!is_known)
                        base::rare_path<"watch: an attempt cannot be completed because of an error">();
                      if (!is_known && (is_over || why.code() == Code::version))
                        return finish(now, key, why, then_out);
                      if (!is_over && !stays_damaged) return look_later(now, key, then_out);
                      if (is_damaged) then_out.warning(to_string(key) + " is given up: " + damage);
                      base::rare_path<"watch: aborts an attempt that is not complete">();
                      abort(key, watched.cause + ": " + why.message(), then_out);
                    });
}

void AttemptWatch::look_later(TimeNs now, const AttemptKey& key, EffectWriter& out) {
  timers_.set(now + poll_, out, [this, key](TimeNs, EffectWriter& then_out) { look(key, then_out); });
}

void AttemptWatch::abort(const AttemptKey& key, std::string cause, EffectWriter& out) {
  operations_.start(abort_of(key, GiveUp::unproven, std::move(cause)), out,
                    [this, key](TimeNs then_now, Result<DecisionPtr> decision, EffectWriter& then_out) {
                      if (!decision.ok()) return finish(then_now, key, decision.status(), then_out);
                      finish(then_now, key, state_of(**decision), then_out);
                    });
}

void AttemptWatch::finish(TimeNs now, const AttemptKey& key, Result<storage::AttemptInfo::State> state,
                          EffectWriter& out) {
  auto found = watched_.find(key);
  std::vector<Then> then = std::move(found->second.then);
  watched_.erase(found);
  for (Then& each : then) each(now, state, out);
}

}  // namespace shoal::actors
