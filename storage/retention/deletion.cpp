// Deletion of one checkpoint, in the order that storage/retention/retention.h states.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string_view>

#include "base/helper_threads.h"
#include "storage/retention/retention.h"
#include "storage/root/attempt_marks.h"

namespace shoal::storage {

namespace {

DeletionResult kept(std::string why) {
  DeletionResult result;
  result.outcome = DeletionResult::Outcome::kept;
  result.why = std::move(why);
  return result;
}

// The pin or tag that keeps this checkpoint; "" if there is none. A mark that cannot be read may keep any
// checkpoint, so it counts.
Result<std::string> find_holder(Storage& storage, MarkKind kind, const AttemptKey& key) {
  SHOAL_ASSIGN_OR_RETURN(MarkList list, list_marks(storage, kind));
  for (const Mark& mark : list.marks) {
    if (mark.key != key) continue;
    std::string note = mark.note.empty() ? "" : " (" + mark.note + ")";
    if (kind == MarkKind::tag) return fmt::format("tagged {}{}", mark.name, note);
    return fmt::format("{} {}{}", mark.is_lease ? "being loaded: pin" : "pinned:", mark.name, note);
  }
  if (!list.damaged.empty()) return list.damaged.front().second.message();
  return std::string();
}

Result<bool> is_other_verified(Storage& storage, const AttemptKey& key) {
  SHOAL_ASSIGN_OR_RETURN(MarkList list, list_marks(storage, MarkKind::verified));
  for (const Mark& mark : list.marks) {
    if (mark.key == key) continue;
    auto info = inspect_attempt(storage, mark.key);
    if (info.ok() && info->state == AttemptInfo::State::committed) return true;
  }
  return false;
}

constexpr std::string_view kRemovedName = "removed";  // of remains that are being removed
constexpr const char* kOnlyVerified = "no other checkpoint is verified";

// The pin or tag that keeps it; "" if there is none.
Result<std::string> find_any_holder(Storage& storage, const AttemptKey& key) {
  SHOAL_ASSIGN_OR_RETURN(std::string holder, find_holder(storage, MarkKind::pin, key));
  if (!holder.empty()) return holder;
  return find_holder(storage, MarkKind::tag, key);
}

// Removes the verified mark, unless no other checkpoint has one. If two processes delete the last two at
// once, each may remove its mark, see no other, and restore its mark, so no mark is lost. false: the
// checkpoint stays.
Result<bool> give_up_verified(Storage& storage, const AttemptKey& key) {
  std::string name = verified_name(key);
  auto mark = read_mark(storage, MarkKind::verified, name);
  if (!mark.ok() && mark.status().code() == Code::not_found) return true;
  SHOAL_ASSIGN_OR_RETURN(bool other, is_other_verified(storage, key));
  if (!other) return false;
  SHOAL_RETURN_IF_ERROR(remove_mark(storage, MarkKind::verified, name));
  SHOAL_ASSIGN_OR_RETURN(other, is_other_verified(storage, key));
  if (other || !mark.ok()) return true;
  SHOAL_RETURN_IF_ERROR(create_mark(storage, MarkKind::verified, *mark).status());
  return false;
}

// Removes all files of a folder except its decision, several at once. Code::busy if it contains a folder.
Status remove_files(Storage& storage, const std::string& folder, unsigned threads, DeletionResult* result) {
  SHOAL_ASSIGN_OR_RETURN(std::vector<ObjectInfo> listed, storage.list(folder));
  for (const ObjectInfo& object : listed) {
    if (object.is_folder) {
      return Status(
          Code::busy,
          fmt::format("{}/{}/{}: the deleted checkpoint contains this folder, which Shoal did not make",
                      storage.describe(), folder, object.name));
    }
  }
  std::erase_if(listed, [](const ObjectInfo& object) {
    return object.name == kDecisionName || object.name == kDeletedMarkName;
  });
  std::atomic<bool> has_failed{false};
  std::mutex mutex;
  Status first;
  base::for_each_by_threads(listed.size(), std::min(threads, kMaxDeletionThreads), [&](size_t i) {
    if (has_failed.load()) return;
    Status status = storage.remove(folder + "/" + listed[i].name);
    if (status.ok()) return;
    std::lock_guard lock(mutex);
    if (first.ok()) first = status;
    has_failed.store(true);
  });
  SHOAL_RETURN_IF_ERROR(first);
  for (const ObjectInfo& object : listed) result->bytes += object.size;
  result->files += static_cast<uint32_t>(listed.size());
  return ok_status();
}

Status ok_if_gone(const Status& status) {
  return status.code() == Code::not_found ? ok_status() : status;
}

// Precondition: the decision is a tombstone with reason deleted, and no pin exists. The shards are removed
// durably before the tombstone. The folder is renamed before that, so that no process can publish in the
// tombstone's place.
Status remove_checkpoint(Storage& storage, const Deletion& deletion, DeletionResult* result) {
  std::string folder = attempt_folder(deletion.key);
  SHOAL_RETURN_IF_ERROR(remove_files(storage, folder, deletion.threads, result));
  SHOAL_RETURN_IF_ERROR(storage.sync_folder(folder));
  // Without a rename the tombstone stays. Otherwise a process that paused before it published its manifest
  // could publish it now, without the files.
  if (!storage.moves_folders()) {
    return storage.create_exclusive(folder + "/" + std::string(kDeletedMarkName), {}).status();
  }
  if (deletion.keeps_tombstone) return ok_status();
  size_t slash = folder.find('/');
  std::string step = folder.substr(0, slash), aside = partial_name(kRemovedName, deletion.nonce);
  SHOAL_RETURN_IF_ERROR(storage.move_folder(folder, aside));
  return remove_remains(storage, step + "/" + aside);
}

// Gives remains a name that nobody continues: `shoal copy` renames what it continues too, so that either of
// the two finds nothing. Returns the new name; "": the folder is gone.
Result<std::string> take_aside(Storage& storage, const std::string& folder) {
  const size_t slash = folder.find('/');
  const std::string name = folder.substr(slash + 1);
  if (name.starts_with(kRemovedName)) return folder;
  const std::string aside = partial_name(kRemovedName, xxh3_128(as_view(name)));
  const std::string aside_folder = folder.substr(0, slash + 1) + aside;
  Status moved = storage.move_folder(folder, aside);
  if (moved.code() == Code::busy) {  // what an interrupted removal of this folder has left
    SHOAL_RETURN_IF_ERROR(remove_remains(storage, aside_folder));
    moved = storage.move_folder(folder, aside);
  }
  const bool is_gone = moved.code() == Code::not_found || moved.code() == Code::busy;
  if (is_gone) return std::string();  // another process removes it, or has removed it
  SHOAL_RETURN_IF_ERROR(moved);
  return aside_folder;
}

}  // namespace

Status remove_remains(Storage& storage, const std::string& remains) {
  std::string folder = remains;
  auto remove_empty = [&](const std::string& name) {
    Status status = storage.remove_folder(name);
    return status.code() == Code::busy ? ok_status() : status;  // another process uses it again
  };
  size_t slash = folder.find('/');
  if (slash == std::string::npos) return remove_empty(folder);
  if (is_partial(folder.substr(slash + 1))) {
    if (storage.moves_folders()) {
      SHOAL_ASSIGN_OR_RETURN(folder, take_aside(storage, remains));
    }
    if (folder.empty()) return remove_empty(remains.substr(0, slash));
    auto listed = storage.list(folder);
    if (!listed.ok() && listed.status().code() != Code::not_found) return listed.status();
    for (const ObjectInfo& object : listed.ok() ? *listed : std::vector<ObjectInfo>()) {
      if (!object.is_folder) SHOAL_RETURN_IF_ERROR(storage.remove(folder + "/" + object.name));
    }
  }
  SHOAL_RETURN_IF_ERROR(remove_empty(folder));
  return remove_empty(folder.substr(0, slash));
}

Result<std::string> why_not_deleted(Storage& storage, const AttemptKey& key) {
  SHOAL_ASSIGN_OR_RETURN(std::string holder, find_any_holder(storage, key));
  if (!holder.empty()) return holder;
  const Status mark = read_mark(storage, MarkKind::verified, verified_name(key)).status();
  if (mark.code() == Code::not_found) return std::string();
  SHOAL_ASSIGN_OR_RETURN(bool other, is_other_verified(storage, key));
  return std::string(other ? "" : kOnlyVerified);
}

Result<DeletionResult> delete_checkpoint(Storage& storage, const Deletion& deletion) {
  const AttemptKey& key = deletion.key;
  auto decision = read_decision(storage, key);
  if (!decision.ok()) {
    if (decision.status().code() != Code::not_found) return decision.status();
    auto listed = storage.list(attempt_folder(key));
    if (listed.ok()) return kept("it is not decided yet");
    if (listed.status().code() == Code::not_found) return DeletionResult{};
    return listed.status();
  }
  if (decision->committed()) {
    SHOAL_ASSIGN_OR_RETURN(std::string holder, find_any_holder(storage, key));
    if (!holder.empty()) return kept(holder);
    SHOAL_ASSIGN_OR_RETURN(bool may_go, give_up_verified(storage, key));
    if (!may_go) return kept(kOnlyVerified);
    Decision tombstone{key, deletion.nonce, deletion.root_id, deletion.unix_time_ns,
                       Tombstone{Tombstone::Reason::deleted, deletion.cause}};
    SHOAL_RETURN_IF_ERROR(ok_if_gone(mark_deleted(storage, tombstone).status()));
  } else if (decision->tombstone().reason == Tombstone::Reason::aborted) {
    return kept("it was aborted and is not a checkpoint");
  }
  DeletionResult result;
  SHOAL_ASSIGN_OR_RETURN(result.why, find_holder(storage, MarkKind::pin, key));
  if (!result.why.empty()) {
    result.outcome = DeletionResult::Outcome::held;
    return result;
  }
  SHOAL_RETURN_IF_ERROR(ok_if_gone(remove_checkpoint(storage, deletion, &result)));
  return result;
}

}  // namespace shoal::storage
