// Attempts: what lies in their folders, and what may be removed from them.
#include <fmt/format.h>

#include <algorithm>

#include "storage/record.h"
#include "storage/run_root.h"

namespace shoal {

namespace {

Result<AttemptInfo::State> read_state(Storage& storage, const AttemptKey& key) {
  std::string path = decision_path(key);
  SHOAL_ASSIGN_OR_RETURN(auto file, storage.open(path));
  Bytes first(std::min<uint64_t>(file->size(), kRecordHeadBytes));
  SHOAL_RETURN_IF_ERROR(file->read_at(0, first));
  SHOAL_ASSIGN_OR_RETURN(DecisionState state,
                         read_decision_state(first, file->size(), storage.describe() + "/" + path));
  switch (state) {
    case DecisionState::committed:
      return AttemptInfo::State::committed;
    case DecisionState::aborted:
      return AttemptInfo::State::aborted;
    case DecisionState::deleted:
      break;
  }
  return AttemptInfo::State::deleted;
}

// A hash of names and sizes, in the order of the listing.
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
  AttemptInfo info;
  info.key = key;
  SHOAL_ASSIGN_OR_RETURN(std::vector<ObjectInfo> listed, storage.list(attempt_folder(key)));
  bool decided = false;
  for (const ObjectInfo& object : listed) {
    info.files_bytes += object.size;
    if (object.name == kDecisionName) {
      decided = true;
    } else {
      ++info.leftover_files;
    }
  }
  info.fingerprint = fingerprint_of(listed);
  if (decided) {
    SHOAL_ASSIGN_OR_RETURN(info.state, read_state(storage, key));
  }
  return info;
}

Result<AttemptList> list_attempts(Storage& storage) {
  AttemptList out;
  std::vector<AttemptKey> keys;
  SHOAL_ASSIGN_OR_RETURN(std::vector<ObjectInfo> steps, storage.list(""));
  for (const ObjectInfo& folder : steps) {
    std::optional<uint64_t> step = parse_step_folder(folder.name);
    if (!step || !folder.is_folder) continue;
    auto attempts = storage.list(folder.name);
    if (!attempts.ok() && attempts.status().code() == Code::not_found) continue;  // removed meanwhile
    if (!attempts.ok()) return attempts.status();
    for (const ObjectInfo& attempt : *attempts) {
      std::optional<AttemptKey> key = parse_attempt_folder(*step, attempt.name);
      if (key && attempt.is_folder) keys.push_back(*key);
    }
  }
  std::sort(keys.begin(), keys.end());
  for (const AttemptKey& key : keys) {
    auto info = inspect_attempt(storage, key);
    if (info.ok()) {
      out.attempts.push_back(*info);
    } else if (info.status().code() != Code::not_found) {  // else it was removed meanwhile
      out.damaged.emplace_back(key, info.status());
    }
  }
  return out;
}

Result<uint64_t> sweep_attempt(Storage& storage, const AttemptKey& key) {
  std::string folder = attempt_folder(key);
  auto decision = read_decision(storage, key);
  if (!decision.ok() && decision.status().code() != Code::not_found) return decision.status();
  if (!decision.ok() || decision->committed()) {
    return Status(Code::refused, fmt::format("{}/{}: nothing may be removed: no tombstone stands there",
                                             storage.describe(), folder));
  }
  SHOAL_ASSIGN_OR_RETURN(std::vector<ObjectInfo> listed, storage.list(folder));
  uint64_t bytes = 0;
  for (const ObjectInfo& object : listed) {
    if (object.name == kDecisionName || object.is_folder) continue;
    SHOAL_RETURN_IF_ERROR(storage.remove(folder + "/" + object.name));
    bytes += object.size;
  }
  return bytes;
}

Status check_files_present(Storage& storage, const AttemptKey& key, const std::vector<FileEntry>& files) {
  std::string folder = attempt_folder(key);
  SHOAL_ASSIGN_OR_RETURN(std::vector<ObjectInfo> listed, storage.list(folder));
  for (const FileEntry& file : files) {
    auto found = std::lower_bound(
        listed.begin(), listed.end(), file.name,
        [](const ObjectInfo& object, const std::string& name) { return object.name < name; });
    if (found == listed.end() || found->name != file.name || found->is_folder) {
      return Status(Code::not_found,
                    fmt::format("{}/{}/{} is not there", storage.describe(), folder, file.name));
    }
    if (found->size != file.size) {
      return Status(Code::corrupt, fmt::format("{}/{}/{} has {} bytes, {} were reported", storage.describe(),
                                               folder, file.name, found->size, file.size));
    }
  }
  return ok_status();
}

}  // namespace shoal
