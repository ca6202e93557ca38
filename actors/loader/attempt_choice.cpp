#include "actors/loader/attempt_choice.h"

namespace shoal::actors {

Result<std::optional<AttemptKey>> newest(const storage::AttemptList& list) {
  std::optional<AttemptKey> best;
  for (const storage::AttemptInfo& info : list.attempts) {
    if (info.state == storage::AttemptInfo::State::committed && (!best || *best < info.key)) best = info.key;
  }
  for (const auto& [key, why] : list.damaged) {
    if (!best || *best < key) {
      return why.with_context(
          "the newest checkpoint, " + to_string(key) +
          ", cannot be read; load another one by its step, or allow the load to fall back");
    }
  }
  return best;
}

bool is_damage(const Status& why) {
  return why.code() == Code::corrupt || why.code() == Code::not_found;
}

Result<std::optional<AttemptKey>> newest_undamaged(const storage::AttemptList& list,
                                                   DamagedAttempts* damaged) {
  std::optional<AttemptKey> best;
  for (const storage::AttemptInfo& info : list.attempts) {
    if (info.state != storage::AttemptInfo::State::committed || damaged->contains(info.key)) continue;
    if (!best || *best < info.key) best = info.key;
  }
  for (const auto& [key, why] : list.damaged) {
    if (best && key <= *best) continue;
    if (!is_damage(why)) {
      return why.with_context(
          to_string(key) + " cannot be read and may be the newest checkpoint; load another one by its step");
    }
    damaged->insert_or_assign(key, why);
  }
  return best;
}

std::optional<AttemptKey> newest_left(const storage::AttemptList& list, const std::optional<AttemptKey>& best,
                                      uint32_t generation, const std::optional<AttemptKey>& below) {
  std::optional<AttemptKey> left;
  for (const storage::AttemptInfo& info : list.attempts) {
    if (info.state != storage::AttemptInfo::State::undecided) continue;
    if (below && *below <= info.key) continue;
    if (info.rank_manifests == 0 && info.key.generation >= generation) continue;
    if ((!best || *best < info.key) && (!left || *left < info.key)) left = info.key;
  }
  return left;
}

std::vector<storage::AttemptInfo> decided_from(const storage::AttemptList& list,
                                               const std::optional<AttemptKey>& best) {
  std::vector<storage::AttemptInfo> decided;
  for (const storage::AttemptInfo& info : list.attempts) {
    if (info.state == storage::AttemptInfo::State::undecided) continue;
    if (!best || *best <= info.key) decided.push_back(info);
  }
  return decided;
}

}  // namespace shoal::actors
