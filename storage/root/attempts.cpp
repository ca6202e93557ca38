// Attempts: the contents of their folders, and what may be removed from them.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>

#include "base/helper_threads.h"
#include "shoal/bytes.h"
#include "storage/decisions/rank_manifest.h"
#include "storage/decisions/record.h"
#include "storage/decisions/tombstone_repair.h"
#include "storage/root/attempt_listing_internal.h"
#include "storage/root/attempt_marks.h"
#include "storage/root/run_root.h"

namespace shoal::storage {

namespace {

// Excludes the partial file of a decision that another process is about to publish or replace. The mark of a
// copy that was committed is of no use either.
bool is_unfinished_shard(const ObjectInfo& object) {
  if (object.name == kCopyMarkName) return true;
  return !object.is_folder && is_partial(object.name) && !object.name.starts_with(kDecisionName);
}

Result<AttemptInfo::State> read_state(Storage& storage, const AttemptKey& key) {
  std::string path = decision_path(key);
  SHOAL_ASSIGN_OR_RETURN(auto file, storage.open(path));
  Bytes first(std::min<uint64_t>(file->size(), kRecordHeadBytes));
  SHOAL_RETURN_IF_ERROR(file->read_at(0, first));
  auto state = read_decision_state(first, file->size(), storage.describe() + "/" + path);
  if (state.status().code() == Code::corrupt && file->size() <= kMaxRepairedBytes) {
    SHOAL_ASSIGN_OR_RETURN(Bytes bytes, storage.read(path, kMaxRepairedBytes));
    const std::optional<Bytes> tombstone = repaired_tombstone(bytes);
    if (tombstone) {
      state = read_decision_state(ByteView(*tombstone).first(kRecordHeadBytes), tombstone->size(), path);
    }
  }
  SHOAL_RETURN_IF_ERROR(state.status());
  switch (*state) {
    case DecisionState::committed:
      return AttemptInfo::State::committed;
    case DecisionState::aborted:
      return AttemptInfo::State::aborted;
    case DecisionState::deleted:
      break;
  }
  return AttemptInfo::State::deleted;
}

// Hashes names and sizes in the order of the listing.
uint64_t fingerprint_of(const std::vector<ObjectInfo>& listed) {
  Bytes text;
  for (const ObjectInfo& object : listed) {
    ByteView name = as_view(object.name);
    text.insert(text.end(), name.begin(), name.end());
    text.push_back(std::byte{0});
    std::byte size[8];
    store_le64(size, object.size);
    text.insert(text.end(), size, size + 8);
  }
  return xxh3_64(text);
}

}  // namespace

Result<AttemptInfo> inspect_attempt(Storage& storage, const AttemptKey& key) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<ObjectInfo> listed, storage.list(attempt_folder(key)));
  return inspect_listed(storage, key, listed);
}

Result<AttemptInfo> inspect_listed(Storage& storage, const AttemptKey& key,
                                   const std::vector<ObjectInfo>& listed) {
  AttemptInfo info;
  info.key = key;
  bool decided = false, is_copy = false, is_deleted = false;
  for (const ObjectInfo& object : listed) {
    is_copy = is_copy || object.name == kCopyMarkName;
    is_deleted = is_deleted || object.name == kDeletedMarkName;
    if (object.name == kDeletedMarkName) continue;
    info.files_bytes += object.size;
    if (object.name == kDecisionName) {
      decided = true;
    } else {
      ++info.leftover_files;
      info.partial_files += is_unfinished_shard(object);
      if (auto name = parse_rank_manifest_name(object.name); name && !object.is_folder) {
        const bool agrees = info.rank_manifests == 0 || info.rank_world == name->world_size;
        info.rank_world = agrees ? name->world_size : 0;
        ++info.rank_manifests;
      }
    }
  }
  info.fingerprint = fingerprint_of(listed);
  if (decided && is_deleted) {
    info.state = AttemptInfo::State::deleted;
  } else if (decided) {
    SHOAL_ASSIGN_OR_RETURN(info.state, read_state(storage, key));
  } else if (is_copy) {  // the files are those of a copy
    info.leftover_files = info.partial_files = info.rank_manifests = info.rank_world = 0;
  }
  return info;
}

namespace {

constexpr size_t kFoldersPerThread = 256;
constexpr size_t kMaxListingThreads = 4;
constexpr size_t kMaxRequests = 16;  // to an object store at once

// Works on several folders at once, because each costs some round trips to the storage.
void for_each_folder(Storage& storage, size_t count, const std::function<void(size_t)>& work) {
  const size_t threads = storage.lists_trees() ? std::min(kMaxRequests, count)
                                               : std::min(kMaxListingThreads, 1 + count / kFoldersPerThread);
  base::for_each_by_threads(count, threads, work);
}

struct StepNames {
  std::vector<AttemptKey> keys;
  std::vector<std::string> remains;
  std::vector<std::pair<AttemptKey, Status>> unreadable;
};

Status is_no_folder(Storage& storage, const std::string& path) {
  return Status(Code::refused, fmt::format("{}/{} is not a folder, and symbolic links are not followed: put "
                                           "the folder itself there, or remove that name",
                                           storage.describe(), path));
}

Result<StepNames> list_step(Storage& storage, const std::string& folder, uint64_t step) {
  StepNames out;
  auto listed = storage.list(folder);
  if (!listed.ok() && listed.status().code() == Code::not_found) return out;  // removed meanwhile
  if (!listed.ok()) return listed.status();
  if (listed->empty()) out.remains.push_back(folder);
  for (const ObjectInfo& object : *listed) {
    std::optional<AttemptKey> key = parse_attempt_folder(step, object.name);
    if (key && !object.is_folder) {
      out.unreadable.emplace_back(*key, is_no_folder(storage, folder + "/" + object.name));
    } else if (key) {
      out.keys.push_back(*key);
    } else if (object.is_folder && is_partial(object.name)) {
      out.remains.push_back(folder + "/" + object.name);
    }
  }
  return out;
}

// Adds the attempt to the list or to its damaged ones. Adds nothing if it no longer exists or has not begun.
// Returns whether it is committed.
bool add_inspected(const Result<AttemptInfo>& info, const AttemptKey& key, AttemptList* out) {
  if (!info.ok()) {
    if (info.status().code() != Code::not_found) out->damaged.emplace_back(key, info.status());
    return false;
  }
  bool has_begun = info->state != AttemptInfo::State::undecided || info->leftover_files != 0;
  if (has_begun) out->attempts.push_back(*info);
  return info->state == AttemptInfo::State::committed;
}

bool inspect_into(Storage& storage, const AttemptKey& key, AttemptList* out) {
  return add_inspected(inspect_attempt(storage, key), key, out);
}

void add_unreadable(AttemptNames& names, AttemptList* out) {
  std::move(names.unreadable.begin(), names.unreadable.end(), std::back_inserter(out->damaged));
}

}  // namespace

namespace {

// Where a path lies: "step-S", "step-S/gGaA" or "step-S/gGaA/NAME...". It may have other names there.
struct PathOfAttempt {
  std::string_view step, folder, rest;
};

PathOfAttempt split_path(std::string_view path) {
  PathOfAttempt out;
  const auto take = [&](std::string_view* part) {
    const size_t slash = std::min(path.find('/'), path.size());
    *part = path.substr(0, slash);
    path.remove_prefix(std::min(slash + 1, path.size()));
  };
  take(&out.step);
  take(&out.folder);
  out.rest = path;
  return out;
}

// One object of an attempt's folder, or a folder in it, as Storage::list shows it.
void add_file(std::string_view rest, uint64_t size, std::vector<ObjectInfo>* files) {
  const size_t slash = rest.find('/');
  const bool is_folder = slash != std::string_view::npos;
  std::string name(rest.substr(0, slash));
  if (!is_partial(name) && !validate_component(name).ok()) return;
  if (is_folder && !files->empty() && files->back().name == name) return;
  files->push_back({std::move(name), is_folder ? 0 : size, is_folder});
}

void sort_listing(ListedAttempts* out) {
  std::sort(out->names.keys.begin(), out->names.keys.end());
  for (auto& [key, files] : out->files) {
    std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  }
}

}  // namespace

Result<ListedAttempts> list_tree_of_attempts(Storage& storage, TreeDepth how) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<TreeObject> objects, storage.list_tree("step-", how, 2));
  ListedAttempts out;
  for (const TreeObject& object : objects) {
    const PathOfAttempt path = split_path(object.path);
    const std::optional<uint64_t> step = parse_step_folder(path.step);
    if (!step) continue;
    if (path.folder.empty()) {
      out.names.unreadable.emplace_back(AttemptKey{kUnknownGeneration, *step, 0},
                                        is_no_folder(storage, object.path));
      continue;
    }
    const std::optional<AttemptKey> key = parse_attempt_folder(*step, path.folder);
    if (key && path.rest.empty()) {
      out.names.unreadable.emplace_back(*key, is_no_folder(storage, object.path));
    } else if (key) {
      const auto [files, is_new] = out.files.try_emplace(*key);
      if (is_new) out.names.keys.push_back(*key);
      add_file(path.rest, object.size, &files->second);
    } else if (!path.rest.empty() && is_partial(path.folder)) {
      std::string folder = fmt::format("{}/{}", path.step, path.folder);
      const bool is_new = out.names.remains.empty() || out.names.remains.back() != folder;
      if (is_new) out.names.remains.push_back(std::move(folder));
    }
  }
  sort_listing(&out);
  return out;
}

Result<AttemptNames> list_attempt_names(Storage& storage) {
  if (storage.lists_trees()) {
    SHOAL_ASSIGN_OR_RETURN(ListedAttempts listed, list_tree_of_attempts(storage, TreeDepth::names));
    return std::move(listed.names);
  }
  AttemptNames out;
  std::vector<std::pair<std::string, uint64_t>> steps;
  SHOAL_ASSIGN_OR_RETURN(std::vector<ObjectInfo> listed, storage.list(""));
  for (ObjectInfo& folder : listed) {
    std::optional<uint64_t> step = parse_step_folder(folder.name);
    if (step && folder.is_folder) {
      steps.emplace_back(std::move(folder.name), *step);
    } else if (step) {
      out.unreadable.emplace_back(AttemptKey{kUnknownGeneration, *step, 0},
                                  is_no_folder(storage, folder.name));
    }
  }
  std::vector<Result<StepNames>> of_steps(steps.size(), Result<StepNames>(StepNames{}));
  for_each_folder(storage, steps.size(),
                  [&](size_t i) { of_steps[i] = list_step(storage, steps[i].first, steps[i].second); });

  for (size_t i = 0; i < of_steps.size(); ++i) {
    Result<StepNames>& one = of_steps[i];
    if (!one.ok()) {
      out.unreadable.emplace_back(AttemptKey{kUnknownGeneration, steps[i].second, 0}, one.status());
      continue;
    }
    out.keys.insert(out.keys.end(), one->keys.begin(), one->keys.end());
    out.remains.insert(out.remains.end(), one->remains.begin(), one->remains.end());
    std::move(one->unreadable.begin(), one->unreadable.end(), std::back_inserter(out.unreadable));
  }
  std::sort(out.keys.begin(), out.keys.end());
  return out;
}

namespace {

// Reads only the decisions whose state the listing does not show.
Result<AttemptList> list_attempts_of_tree(Storage& storage) {
  SHOAL_ASSIGN_OR_RETURN(ListedAttempts listed, list_tree_of_attempts(storage, TreeDepth::objects));
  const std::vector<AttemptKey>& keys = listed.names.keys;
  std::vector<Result<AttemptInfo>> infos(keys.size(), Result<AttemptInfo>(AttemptInfo{}));
  for_each_folder(storage, keys.size(),
                  [&](size_t i) { infos[i] = inspect_listed(storage, keys[i], listed.files.at(keys[i])); });
  AttemptList out;
  for (size_t i = 0; i < keys.size(); ++i) add_inspected(infos[i], keys[i], &out);
  add_unreadable(listed.names, &out);
  return out;
}

}  // namespace

Result<AttemptList> list_attempts(Storage& storage) {
  if (storage.lists_trees()) return list_attempts_of_tree(storage);
  SHOAL_ASSIGN_OR_RETURN(AttemptNames names, list_attempt_names(storage));
  AttemptList out;
  for (const AttemptKey& key : names.keys) inspect_into(storage, key, &out);
  add_unreadable(names, &out);
  return out;
}

Result<AttemptList> list_attempt_states(Storage& storage) {
  if (storage.lists_trees()) return list_attempts_of_tree(storage);
  SHOAL_ASSIGN_OR_RETURN(AttemptNames names, list_attempt_names(storage));
  std::vector<AttemptList> of_keys(names.keys.size());
  for_each_folder(storage, names.keys.size(), [&](size_t i) {
    const AttemptKey& key = names.keys[i];
    auto state = read_state(storage, key);
    if (state.ok()) {
      AttemptInfo info;
      info.key = key;
      info.state = *state;
      of_keys[i].attempts.push_back(info);
    } else if (state.status().code() == Code::not_found) {
      inspect_into(storage, key, &of_keys[i]);
    } else {
      of_keys[i].damaged.emplace_back(key, state.status());
    }
  });
  AttemptList out;
  for (AttemptList& one : of_keys) {
    std::move(one.attempts.begin(), one.attempts.end(), std::back_inserter(out.attempts));
    std::move(one.damaged.begin(), one.damaged.end(), std::back_inserter(out.damaged));
  }
  add_unreadable(names, &out);
  return out;
}

Result<AttemptList> list_newest_attempts(Storage& storage) {
  SHOAL_ASSIGN_OR_RETURN(AttemptNames names, list_attempt_names(storage));
  AttemptList out;
  for (auto key = names.keys.rbegin(); key != names.keys.rend(); ++key) {
    if (inspect_into(storage, *key, &out)) break;
  }
  std::reverse(out.attempts.begin(), out.attempts.end());
  std::reverse(out.damaged.begin(), out.damaged.end());
  add_unreadable(names, &out);
  return out;
}

Result<AttemptList> list_attempts_of_step(Storage& storage, uint64_t step) {
  std::string folder = attempt_folder({0, step, 0});
  folder.resize(folder.find('/'));
  SHOAL_ASSIGN_OR_RETURN(StepNames names, list_step(storage, folder, step));
  std::sort(names.keys.begin(), names.keys.end());
  AttemptList out;
  for (const AttemptKey& key : names.keys) inspect_into(storage, key, &out);
  std::move(names.unreadable.begin(), names.unreadable.end(), std::back_inserter(out.damaged));
  return out;
}

Result<uint64_t> sweep_attempt(Storage& storage, const AttemptKey& key) {
  std::string folder = attempt_folder(key);
  auto decision = read_decision(storage, key);
  if (!decision.ok() && decision.status().code() != Code::not_found) return decision.status();
  if (!decision.ok()) {
    return Status(Code::refused,
                  fmt::format("{}/{}: nothing may be removed, because no decision exists there",
                              storage.describe(), folder));
  }
  SHOAL_ASSIGN_OR_RETURN(std::vector<ObjectInfo> listed, storage.list(folder));
  uint64_t bytes = 0;
  for (const ObjectInfo& object : listed) {
    if (object.name == kDecisionName || object.is_folder) continue;
    if (decision->committed() && !is_unfinished_shard(object)) continue;
    SHOAL_RETURN_IF_ERROR(storage.remove(folder + "/" + object.name));
    bytes += object.size;
  }
  return bytes;
}

Status check_files_present(Storage& storage, const AttemptKey& key, const std::vector<FileEntry>& files) {
  const std::string folder = attempt_folder(key);
  SHOAL_ASSIGN_OR_RETURN(std::vector<ObjectInfo> listed, storage.list(folder));
  return check_files_listed(listed, files, storage.describe() + "/" + folder);
}

Status check_files_listed(const std::vector<ObjectInfo>& listed, const std::vector<FileEntry>& files,
                          const std::string& full_folder) {
  for (const FileEntry& file : files) {
    auto found = std::lower_bound(
        listed.begin(), listed.end(), file.name,
        [](const ObjectInfo& object, const std::string& name) { return object.name < name; });
    if (found == listed.end() || found->name != file.name || found->is_folder) {
      return Status(Code::not_found,
                    fmt::format("{}/{} does not exist: rank {} reported {} there, but the folder no longer "
                                "lists it; it was removed, or the listing of this host is stale",
                                full_folder, file.name, file.rank, human_bytes(file.size)));
    }
    if (found->size != file.size) {
      return Status(Code::corrupt, fmt::format("{}/{} has {} bytes, but {} were reported", full_folder,
                                               file.name, found->size, file.size));
    }
  }
  return ok_status();
}

}  // namespace shoal::storage
