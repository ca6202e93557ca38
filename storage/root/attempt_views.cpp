#include "storage/root/attempt_views.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/helper_threads.h"
#include "storage/decisions/completion.h"
#include "storage/decisions/rank_manifest.h"

namespace shoal::storage {

CheckpointInfo::State AttemptView::state() const {
  if (!damage.ok()) return CheckpointInfo::State::damaged;
  if (committed()) return CheckpointInfo::State::committed;
  switch (info.state) {
    case AttemptInfo::State::committed:
      return CheckpointInfo::State::committed;
    case AttemptInfo::State::aborted:
      return CheckpointInfo::State::aborted;
    case AttemptInfo::State::deleted:
      return CheckpointInfo::State::deleted;
    case AttemptInfo::State::undecided:
      break;
  }
  return CheckpointInfo::State::undecided;
}

namespace {

constexpr size_t kMaxViewThreads = 16;  // that read from an object store

std::string proof_of(Storage& storage, const AttemptKey& key) {
  const Status proven = prove_complete(storage, key).status();
  if (proven.ok()) return "its files prove it complete: the next job commits it";
  return is_unproven(proven) || proven.code() == Code::version ? proven.message() : "";
}

}  // namespace

Result<AttemptView> view_attempt(Storage& storage, const AttemptInfo& info, const ViewDepth& depth) {
  AttemptView view;
  view.key = info.key;
  view.info = info;
  if (info.is_complete_set()) {
    auto manifest = merge_rank_manifests(storage, info.key);
    if (!manifest.ok()) return view;  // the load that reads it reports the error
    view.decision = Decision{info.key, {}, {}, 0, std::move(*manifest)};
    view.is_merged = false;
  }
  if (info.state == AttemptInfo::State::undecided) {
    if (info.rank_manifests == 0 && depth.proves) view.proof = proof_of(storage, info.key);
    return view;
  }
  auto decision =
      depth.leaves_encoded ? read_decision_encoded(storage, info.key) : read_decision(storage, info.key);
  if (decision.ok()) {
    view.decision = std::move(*decision);
    return view;
  }
  Code code = decision.status().code();
  if (code == Code::version || code == Code::not_found) return decision.status();
  view.damage = decision.status();
  return view;
}

Result<std::vector<AttemptView>> view_list(Storage& storage, const AttemptList& list,
                                           const ViewDepth& depth) {
  std::vector<AttemptView> views;
  const size_t count = list.attempts.size(), threads = storage.lists_trees() ? kMaxViewThreads : 1;
  std::vector<Result<AttemptView>> viewed(count, Result<AttemptView>(AttemptView{}));
  base::for_each_by_threads(count, std::min(threads, count),
                            [&](size_t i) { viewed[i] = view_attempt(storage, list.attempts[i], depth); });
  for (Result<AttemptView>& view : viewed) {
    if (!view.ok() && view.status().code() == Code::not_found) continue;  // removed meanwhile
    if (!view.ok()) return view.status();
    views.push_back(std::move(*view));
  }
  for (const auto& [key, status] : list.damaged) {
    AttemptView view;
    view.key = key;
    view.damage = status;
    views.push_back(std::move(view));
  }
  std::sort(views.begin(), views.end(),
            [](const AttemptView& a, const AttemptView& b) { return a.key < b.key; });
  return views;
}

Result<std::vector<AttemptView>> view_attempts(Storage& storage) {
  SHOAL_ASSIGN_OR_RETURN(AttemptList list, list_attempts(storage));
  return view_list(storage, list);
}

namespace {

// The newest `most` attempts, and older ones up to the newest checkpoint if these contain none.
Result<AttemptList> list_newest(Storage& storage, size_t most, size_t* omitted) {
  SHOAL_ASSIGN_OR_RETURN(AttemptNames names, list_attempt_names(storage));
  AttemptList list;
  bool has_checkpoint = false;
  size_t seen = 0;
  for (auto key = names.keys.rbegin(); key != names.keys.rend() && (seen < most || !has_checkpoint); ++key) {
    ++seen;
    auto info = inspect_attempt(storage, *key);
    if (info.ok()) {
      has_checkpoint = has_checkpoint || info->state == AttemptInfo::State::committed;
      bool has_begun = info->state != AttemptInfo::State::undecided || info->leftover_files != 0;
      if (has_begun) list.attempts.push_back(*info);
    } else if (info.status().code() != Code::not_found) {
      list.damaged.emplace_back(*key, info.status());
    }
  }
  std::move(names.unreadable.begin(), names.unreadable.end(), std::back_inserter(list.damaged));
  *omitted = names.keys.size() - seen;
  return list;
}

CheckpointInfo info_of(const AttemptView& view) {
  CheckpointInfo info;
  info.key = view.key;
  info.state = view.state();
  info.cause = view.damage.message();
  if (view.decision) info.unix_time_ns = view.decision->unix_time_ns;
  if (view.committed()) {
    const Metadata metadata = metadata_of(*view.decision, false);
    info.world_size = metadata.world_size;
    info.files = metadata.files;
    info.payload_bytes = metadata.payload_bytes;
  } else if (view.decision) {
    info.cause = view.decision->tombstone().cause;
  }
  if (info.cause.size() > kMaxListedCauseBytes) info.cause.resize(kMaxListedCauseBytes);
  return info;
}

}  // namespace

Result<std::vector<AttemptView>> view_newest_attempts(Storage& storage, size_t most, size_t* omitted,
                                                      const ViewDepth& depth) {
  SHOAL_ASSIGN_OR_RETURN(AttemptList list, list_newest(storage, most, omitted));
  return view_list(storage, list, depth);
}

// Keeps only one manifest in memory at a time.
Result<CheckpointList> list_newest_checkpoints(Storage& storage, uint32_t newest) {
  size_t omitted = 0;
  SHOAL_ASSIGN_OR_RETURN(AttemptList list,
                         list_newest(storage, std::min(newest, kMaxListedCheckpoints), &omitted));
  CheckpointList out;
  out.omitted = omitted;
  for (const AttemptInfo& info : list.attempts) {
    auto view = view_attempt(storage, info, {.leaves_encoded = true, .proves = false});
    if (view.status().code() == Code::not_found) continue;  // removed meanwhile
    if (view.status().code() == Code::version) {
      list.damaged.emplace_back(info.key, view.status());
      continue;
    }
    SHOAL_RETURN_IF_ERROR(view.status());
    out.attempts.push_back(info_of(*view));
  }
  for (const auto& [key, status] : list.damaged) {
    AttemptView view;
    view.key = key;
    view.damage = status;
    out.attempts.push_back(info_of(view));
  }
  std::sort(out.attempts.begin(), out.attempts.end(),
            [](const CheckpointInfo& a, const CheckpointInfo& b) { return a.key < b.key; });
  if (out.attempts.size() > kMaxListedCheckpoints) {
    const size_t older = out.attempts.size() - kMaxListedCheckpoints;
    out.attempts.erase(out.attempts.begin(), out.attempts.begin() + static_cast<ptrdiff_t>(older));
    out.omitted += older;
  }
  return out;
}

}  // namespace shoal::storage
