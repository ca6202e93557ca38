#include "actors/loader/load_choice.h"

#include <functional>
#include <string>
#include <utility>

#include "base/rare_path.h"

namespace shoal::actors {

namespace {

// A missing file or folder of the root does not mean that there is no checkpoint.
Status unreadable(const Status& why) {
  return why.code() == Code::not_found ? Status(Code::corrupt, why.message()) : why;
}

}  // namespace

Status LoadChooser::no_checkpoint() {
  return Status(Code::not_found, "this root has no committed checkpoint");
}

Status LoadChooser::no_checkpoint_of(uint64_t step, const std::string& why) {
  return Status(Code::not_found, "step " + std::to_string(step) +
                                     " has no committed checkpoint in this root" +
                                     (why.empty() ? "" : ": " + why));
}

void LoadChooser::choose_latest(uint32_t ordinal, const AttemptKey& last_save, EffectWriter& out, Then then) {
  if (may_fall_back(ordinal)) {
    const auto [waiting, is_first] = falling_back_.try_emplace(ordinal);
    waiting->second.push_back(std::move(then));
    if (!is_first) return;
    then = [this, ordinal](TimeNs now, Result<Chosen> chosen, EffectWriter& then_out) {
      const auto all = falling_back_.extract(ordinal);
      for (const Then& each : all.mapped()) each(now, chosen, then_out);
    };
  }
  auto load = std::make_shared<Load>(Load{ordinal, last_save, std::move(then)});
  operations_.start(operation::ReadLoadChoice{config_.generation, ordinal, whose()}, out,
                    [this, load](TimeNs now, Result<storage::LoadChoice> choice, EffectWriter& then_out) {
                      if (choice.ok()) return chosen(now, load, *choice, then_out);
                      if (choice.status().code() != Code::not_found)
                        return load->then(now, choice.status(), then_out);
                      decide_earlier(load, then_out);
                    });
}

// Decides every attempt above the chosen one first, so that no attempt that began before the choice is
// committed later.
void LoadChooser::decide_earlier(const LoadPtr& load, EffectWriter& out) {
  auto then = [this, load](TimeNs now, Result<storage::AttemptList> list, EffectWriter& then_out) {
    if (!list.ok()) return load->then(now, unreadable(list.status()), then_out);
    listed(now, load, std::move(*list), then_out);
  };
  if (load->falls_back()) return operations_.start(operation::ListAttempts{}, out, std::move(then));
  operations_.start(operation::ListNewestAttempts{}, out, std::move(then));
}

void LoadChooser::listed(TimeNs now, const LoadPtr& load, storage::AttemptList list, EffectWriter& out) {
  load->aborted.clear();
  load->undecided.clear();
  auto best = load->falls_back() ? newest_undamaged(list, &load->damaged) : newest(list);
  if (!best.ok()) return load->then(now, unreadable(best.status()), out);
  std::vector<AttemptKey> undecided;
  for (const storage::AttemptInfo& info : list.attempts) {
    if (info.state != storage::AttemptInfo::State::undecided) continue;
    if (*best && info.key < **best) continue;
    if (!is_left_to_others(*load, info.key)) {
      undecided.push_back(info.key);
      continue;
    }
    if (!config_.read_only)
      base::rare_path<"loader: leaves to others a save that its ranks have not called">();
    load->undecided.push_back(info.key);
  }
  if (!undecided.empty()) {
    base::rare_path<"loader: waits for undecided attempts">();
    return await_decisions(now, load, undecided, out);
  }
  if (load->falls_back() && *best && load->verified != *best) return verify(load, **best, out);
  std::vector<storage::AttemptInfo> decided = decided_from(list, *best);
  std::erase_if(decided, [&](const storage::AttemptInfo& info) { return load->damaged.contains(info.key); });
  confirm(now, load, *best, std::move(decided), out);
}

// Verification takes as long as reading everything, so attempts must be listed again afterwards.
void LoadChooser::verify(const LoadPtr& load, const AttemptKey& key, EffectWriter& out) {
  out.info("load(latest) reads all of " + to_string(key) +
           ", because it may fall back to an older checkpoint if this one is damaged");
  operations_.start(operation::VerifyCheckpoint{key}, out,
                    [this, load, key](TimeNs now, Result<operation::Done> result, EffectWriter& then_out) {
                      const Status outcome = result.status();
                      const bool is_gone = outcome.code() == Code::not_found;
                      if (!outcome.ok() && !is_damage(outcome)) {
                        return load->then(
                            now, outcome.with_context(to_string(key) + " could not be verified"), then_out);
                      }
                      if (outcome.ok()) load->verified = key;
                      if (!outcome.ok() && !is_gone) load->damaged.insert_or_assign(key, outcome);
                      decide_earlier(load, then_out);
                    });
}

// A listing may show decisions that are not durable yet, and the choice depends on them. So each is read
// again, one after the other, which syncs it. If one differs, the load lists again.
void LoadChooser::confirm(TimeNs now, const LoadPtr& load, const std::optional<AttemptKey>& best,
                          std::vector<storage::AttemptInfo> decided, EffectWriter& out) {
  if (decided.empty()) return publish(now, load, best, out);
  const storage::AttemptInfo last = decided.back();
  decided.pop_back();
  operations_.start(operation::ReadDecision{last.key}, out,
                    [this, load, best, last, decided = std::move(decided)](
                        TimeNs then_now, Result<DecisionPtr> decision, EffectWriter& then_out) {
                      const bool vanished = decision.status().code() == Code::not_found;
                      if (load->falls_back() && decision.status().code() == Code::corrupt) {
                        load->damaged.insert_or_assign(last.key, decision.status());
                        return decide_earlier(load, then_out);
                      }
                      if (decision.status().code() == Code::corrupt) {
                        const std::string what =
                            "the newest checkpoint, " + to_string(last.key) +
                            ", cannot be read; load another one by its step, or allow the load to fall back";
                        return load->then(then_now, decision.status().with_context(what), then_out);
                      }
                      if (!decision.ok() && !vanished)
                        return load->then(then_now, decision.status(), then_out);
                      if (vanished || state_of(**decision) != last.state) {
                        base::rare_path<"loader: a decision differs from the listing">();
                        return decide_earlier(load, then_out);
                      }
                      if (last.state == storage::AttemptInfo::State::aborted)
                        load->aborted.emplace(last.key, (*decision)->tombstone().cause);
                      confirm(then_now, load, best, decided, then_out);
                    });
}

// Waits for all attempts at once, so that the load waits only for the slowest. Then lists again.
void LoadChooser::await_decisions(TimeNs now, const LoadPtr& load, const std::vector<AttemptKey>& keys,
                                  EffectWriter& out) {
  struct Wait {
    size_t left = 0;
    bool failed = false;
  };
  auto wait = std::make_shared<Wait>(Wait{keys.size(), false});
  for (const AttemptKey& key : keys) {
    // An attempt of this generation has its own deadlines. One of an earlier generation is abandoned when
    // nobody writes it any more.
    const uint32_t patience_ms = key.generation < config_.generation ? config_.timeouts.abandoned_after_ms
                                                                     : config_.timeouts.node_deadline_ms;
    watch_.watch(now, key, patience_ms * kMillisecond, "it was still undecided when a later load began", out,
                 [this, load, wait](TimeNs then_now, Result<storage::AttemptInfo::State> state,
                                    EffectWriter& then_out) {
                   --wait->left;
                   if (wait->failed) return;
                   if (!state.ok()) {
                     base::rare_path<"loader: cannot learn whether an attempt is decided">();
                     wait->failed = true;
                     return load->then(then_now, unreadable(state.status()), then_out);
                   }
                   if (wait->left == 0) decide_earlier(load, then_out);
                 });
  }
}

void LoadChooser::publish(TimeNs now, const LoadPtr& load, const std::optional<AttemptKey>& key,
                          EffectWriter& out) {
  if (!key && !load->damaged.empty()) {  // Code::not_found would let the job start from scratch
    const auto& [newest_key, why] = *load->damaged.rbegin();
    return load->then(now,
                      Status(Code::corrupt, "every checkpoint of this root is damaged (" +
                                                std::to_string(load->damaged.size()) + "); the newest is " +
                                                to_string(newest_key) + ": " + why.message()),
                      out);
  }
  report_passed_over(*load, key, out);
  storage::LoadChoice choice;
  choice.found = key.has_value();
  if (key) choice.key = *key;
  if (key) choice.passed_over = passed_over(*load, key);
  operations_.start(operation::PublishLoadChoice{config_.generation, load->ordinal, choice, whose()}, out,
                    [load](TimeNs then_now, Result<storage::LoadChoice> existing, EffectWriter& then_out) {
                      if (!existing.ok())
                        return load->then(then_now, unreadable(existing.status()), then_out);
                      chosen(then_now, load, *existing, then_out);
                    });
}

PassedOverPtr LoadChooser::passed_over(const Load& load, const std::optional<AttemptKey>& key) {
  std::map<AttemptKey, std::string, std::greater<>> newer;
  for (const auto& [aborted, cause] : load.aborted) newer.emplace(aborted, "aborted: " + cause);
  for (const auto& [damaged, why] : load.damaged) newer.emplace(damaged, "damaged: " + why.message());
  for (const AttemptKey& undecided : load.undecided) newer.emplace(undecided, "not decided yet");
  auto all = std::make_shared<PassedOver>();
  for (const auto& [each, cause] : newer) {
    if (!key || *key < each) all->add(each, cause);
  }
  return all->empty() ? nullptr : all;
}

// A load that goes back always logs it: aborted and damaged attempts above the checkpoint, the newest first.
void LoadChooser::report_passed_over(const Load& load, const std::optional<AttemptKey>& key,
                                     EffectWriter& out) {
  const std::string loaded = key ? "chooses " + to_string(*key) : "finds no checkpoint";
  if (!load.undecided.empty()) {
    out.info("load(latest) " + loaded + ": " + std::to_string(load.undecided.size()) +
             " newer attempts are not decided yet; the newest is " + to_string(load.undecided.back()));
  }
  std::map<AttemptKey, std::string, std::greater<>> newer;
  for (const auto& [aborted, cause] : load.aborted) newer.emplace(aborted, "was aborted: " + cause);
  for (const auto& [damaged, why] : load.damaged) {
    if (!key || *key < damaged) newer.emplace(damaged, "is damaged: " + why.message());
  }
  size_t reported = 0;
  for (const auto& [each, cause] : newer) {
    if (reported++ == kMaxPassedOverNamed) {
      return out.warning("load(latest) " + loaded + ": " +
                         std::to_string(newer.size() - kMaxPassedOverNamed) +
                         " further newer attempts are passed over; `shoal ls` lists them");
    }
    out.warning("load(latest) " + loaded + ": it passes over the newer " + to_string(each) + ", which " +
                cause);
  }
}

void LoadChooser::chosen(TimeNs now, const LoadPtr& load, const storage::LoadChoice& choice,
                         EffectWriter& out) {
  if (!choice.found) return load->then(now, no_checkpoint(), out);
  load->then(now, Chosen{choice.key, choice.passed_over}, out);
}

void LoadChooser::choose_step(uint64_t step, EffectWriter& out, Then then) {
  list_step(step, {}, out, std::move(then));
}

// An attempt that the root proves complete counts. If no attempt can be loaded, the error states what the
// newest lacks.
void LoadChooser::list_step(uint64_t step, Tried tried, EffectWriter& out, Then then) {
  operations_.start(
      operation::ListAttemptsOfStep{step}, out,
      [this, step, tried = std::move(tried), then = std::move(then)](
          TimeNs now, Result<storage::AttemptList> list, EffectWriter& then_out) {
        if (!list.ok()) return then(now, unreadable(list.status()), then_out);
        std::optional<AttemptKey> best;
        for (const storage::AttemptInfo& info : list->attempts) {
          if (info.key.step == step && info.state == storage::AttemptInfo::State::committed &&
              (!best || *best < info.key)) {
            best = info.key;
          }
        }
        const auto left = config_.read_only ? std::optional<AttemptKey>()
                                            : newest_left(*list, best, config_.generation, tried.from);
        if (left) {
          return operations_.start(
              operation::CompleteAttempt{*left}, then_out,
              [this, step, left, why = tried.why, then](TimeNs, Result<DecisionPtr> completed,
                                                        EffectWriter& left_out) {
                list_step(step, {left, why.ok() ? completed.status() : why}, left_out, then);
              });
        }
        for (const auto& [key, why] : list->damaged) {
          if (key.step == step && !best) return then(now, unreadable(why), then_out);
        }
        if (!best && !tried.why.ok()) {
          const bool is_unfinished = tried.why.code() == Code::not_found;
          return then(now, is_unfinished ? no_checkpoint_of(step, tried.why.message()) : tried.why, then_out);
        }
        if (!best) return then(now, no_checkpoint_of(step, ""), then_out);
        then(now, Chosen{*best}, then_out);
      });
}

}  // namespace shoal::actors
