#include "storage/decisions/rank_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/helper_threads.h"
#include "base/rank_names.h"
#include "storage/decisions/rank_manifest_set.h"
#include "storage/root/run_root.h"
#include "storage/shards/shard_file.h"

namespace shoal::storage {

namespace {

constexpr size_t kManifestsPerThread = 32;
constexpr size_t kMaxMergeThreads = 8;

bool are_equal(const RankManifest& a, const RankManifest& b) {
  return a.key == b.key && a.rank == b.rank && a.world_size == b.world_size && a.root_id == b.root_id &&
         a.layout->id() == b.layout->id() && a.rule_version == b.rule_version && a.options == b.options &&
         a.payload_bytes == b.payload_bytes && a.user == b.user &&
         std::equal(a.files.begin(), a.files.end(), b.files.begin(), b.files.end(),
                    [](const FileEntry& x, const FileEntry& y) {
                      return x.name == y.name && x.size == y.size && x.header_digest == y.header_digest;
                    });
}

Status missing(const std::string& folder, const std::vector<RankManifestName>& names, uint32_t world_size) {
  std::vector<bool> is_there(world_size, false);
  for (const RankManifestName& name : names) is_there[name.rank] = true;
  std::vector<Rank> absent;
  for (Rank rank = 0; rank < world_size; ++rank) {
    if (!is_there[rank]) absent.push_back(rank);
  }
  const bool one = absent.size() == 1;
  return Status(Code::not_found,
                fmt::format("{}: the manifest{} of {} of {} {} missing", folder, one ? "" : "s",
                            base::name_ranks(absent), world_size, one ? "is" : "are"));
}

// The file names of a complete set, by rank.
Result<std::vector<RankManifestName>> names_of_set(const std::vector<ObjectInfo>& listed,
                                                   const std::string& full_folder) {
  std::vector<RankManifestName> names;
  for (const ObjectInfo& object : listed) {
    std::optional<RankManifestName> name = parse_rank_manifest_name(object.name);
    if (!name || object.is_folder) continue;
    if (!names.empty() && names.front().world_size != name->world_size) {
      return Status(Code::corrupt, fmt::format("{}: it holds manifests of two worlds, of {} and of {} ranks",
                                               full_folder, names.front().world_size, name->world_size));
    }
    names.push_back(*name);
  }
  if (names.empty()) return Status(Code::not_found, full_folder + ": it holds no manifest of any rank");
  if (names.size() != names.front().world_size) return missing(full_folder, names, names.front().world_size);
  std::sort(names.begin(), names.end(),
            [](const RankManifestName& a, const RankManifestName& b) { return a.rank < b.rank; });
  return names;
}

// Reads several at once, because each costs some round trips to the storage. Returns the first error by rank.
Result<std::vector<RankManifest>> read_set(Storage& storage, const AttemptKey& key,
                                           const std::vector<RankManifestName>& names) {
  std::vector<std::optional<Result<RankManifest>>> read(names.size());
  const size_t threads = std::min(kMaxMergeThreads, 1 + names.size() / kManifestsPerThread);
  base::for_each_by_threads(names.size(), threads,
                            [&](size_t i) { read[i] = read_rank_manifest(storage, key, names[i]); });
  std::vector<RankManifest> out;
  out.reserve(read.size());
  for (auto& each : read) {
    SHOAL_RETURN_IF_ERROR(each->status());
    out.push_back(std::move(*each).value());
  }
  return out;
}

Status compare(const RankManifest& first, const RankManifest& other, const std::string& full_folder) {
  auto differ = [&](std::string_view what) {
    return Status(Code::corrupt, fmt::format("{}: the manifests of ranks {} and {} are of different {}",
                                             full_folder, first.rank, other.rank, what));
  };
  if (other.root_id != first.root_id) return differ("roots");
  if (other.rule_version != first.rule_version) return differ("planning rules");
  if (other.options != first.options) return differ("save options");
  if (Status same = check_same_user_metadata(first.rank, first.user, other.rank, other.user); !same.ok()) {
    return Status(Code::corrupt, full_folder + ": " + same.message());
  }
  return ok_status();
}

}  // namespace

std::string rank_manifest_path(const AttemptKey& key, const RankManifestName& name) {
  return attempt_folder(key) + "/" + rank_manifest_name(name.rank, name.world_size);
}

Status publish_rank_manifest(Storage& storage, const RankManifest& manifest) {
  SHOAL_ASSIGN_OR_RETURN(Bytes bytes, encode_rank_manifest(manifest));
  const RankManifestName name{manifest.rank, manifest.world_size};
  const std::string path = rank_manifest_path(manifest.key, name);
  // A rank with shards has a folder. If the folder is gone, the attempt was removed meanwhile.
  auto created =
      manifest.files.empty() ? storage.create_exclusive(path, bytes) : storage.create_in_folder(path, bytes);
  SHOAL_RETURN_IF_ERROR(created.status());
  SHOAL_ASSIGN_OR_RETURN(RankManifest existing, read_rank_manifest(storage, manifest.key, name));
  if (!are_equal(existing, manifest)) {
    return Status(Code::already_exists, fmt::format("{}/{}: another manifest of this rank exists already",
                                                    storage.describe(), path));
  }
  for (const FileEntry& file : existing.files) {
    SHOAL_RETURN_IF_ERROR(ShardReader::open(storage, attempt_folder(manifest.key) + "/" + file.name,
                                            &file.header_digest, &file.size)
                              .status());
  }
  return ok_status();
}

namespace {

Result<Manifest> merge_listed(Storage& storage, const AttemptKey& key,
                              const std::vector<ObjectInfo>& listed) {
  const std::string full_folder = storage.describe() + "/" + attempt_folder(key);
  SHOAL_ASSIGN_OR_RETURN(std::vector<RankManifestName> names, names_of_set(listed, full_folder));
  SHOAL_ASSIGN_OR_RETURN(std::vector<RankManifest> set, read_set(storage, key, names));
  SHOAL_ASSIGN_OR_RETURN(Manifest merged, merge_rank_manifests(std::move(set), full_folder));
  // A rank publishes its manifest before it looks at its files once more, so one may be missing. This host
  // may also see an older listing. In both cases the set is not complete now.
  if (Status are_there = check_files_listed(listed, merged.files, full_folder); !are_there.ok()) {
    return Status(Code::not_found, are_there.message());
  }
  return merged;
}

}  // namespace

Result<std::vector<Rank>> list_missing_manifests(Storage& storage, const AttemptKey& key,
                                                 uint32_t world_size) {
  SHOAL_ASSIGN_OR_RETURN(std::vector<ObjectInfo> listed, storage.list(attempt_folder(key)));
  if (listed.empty()) return Status(Code::not_found, "the root holds nothing of " + to_string(key));
  std::vector<bool> is_there(world_size);
  for (const ObjectInfo& object : listed) {
    const std::optional<RankManifestName> name = parse_rank_manifest_name(object.name);
    if (name && name->world_size == world_size) is_there[name->rank] = true;
  }
  std::vector<Rank> missing;
  for (Rank rank = 0; rank < world_size; ++rank) {
    if (!is_there[rank]) missing.push_back(rank);
  }
  return missing;
}

Result<Manifest> merge_rank_manifests(Storage& storage, const AttemptKey& key) {
  SHOAL_ASSIGN_OR_RETURN(std::vector<ObjectInfo> listed, storage.list(attempt_folder(key)));
  return merge_listed(storage, key, listed);
}

Result<Manifest> merge_rank_manifests(std::vector<RankManifest> set, const std::string& folder) {
  Manifest merged;
  merged.rule_version = set.front().rule_version;
  merged.options = set.front().options;
  merged.user = set.front().user;
  std::vector<LayoutId> ids;
  std::map<LayoutId, LayoutPtr> layouts;
  for (RankManifest& each : set) {
    SHOAL_RETURN_IF_ERROR(compare(set.front(), each, folder));
    ids.push_back(each.layout->id());
    layouts.emplace(each.layout->id(), each.layout);
    merged.payload_bytes += each.payload_bytes;
    for (FileEntry& file : each.files) merged.files.push_back(std::move(file));
  }
  auto roster = Roster::make(ids, std::vector<uint32_t>(ids.size(), 0));
  if (!roster.ok()) return Status(Code::corrupt, folder + ": " + roster.status().message());
  auto world = std::make_shared<World>(World{std::move(*roster), {}});
  for (const LayoutId& id : world->roster.layout_ids()) world->layouts.push_back(layouts.at(id));
  Status fits = validate_world(*world);
  if (fits.ok()) fits = check_coverage(*world, merged.options);
  if (!fits.ok()) {
    return Status(Code::corrupt,
                  folder + ": the files of its ranks do not make a checkpoint: " + fits.message());
  }
  merged.world = std::move(world);
  return merged;
}

Status allow_commit(const BeforeCommit& before_commit) {
  if (!before_commit) return ok_status();
  const Status allowed = before_commit();
  const Code code = allowed.code();
  const bool reads_as_the_attempts =
      code == Code::not_found || code == Code::corrupt || code == Code::version;
  return reads_as_the_attempts ? Status(Code::refused, allowed.message()) : allowed;
}

Result<Decision> complete_rank_local(Storage& storage, const AttemptKey& key, const DecisionStamp& stamp,
                                     const BeforeCommit& before_commit) {
  auto existing = read_decision(storage, key);
  if (existing.ok() || existing.status().code() != Code::not_found) return existing;
  auto listed = storage.list(attempt_folder(key));
  if (listed.status().code() == Code::not_found) return folder_gone(key, stamp.root_id);
  SHOAL_RETURN_IF_ERROR(listed.status());
  SHOAL_ASSIGN_OR_RETURN(Manifest merged, merge_listed(storage, key, *listed));
  SHOAL_RETURN_IF_ERROR(allow_commit(before_commit));
  return publish_decision_in_folder(
      storage, Decision{key, stamp.nonce, stamp.root_id, stamp.unix_time_ns, std::move(merged)});
}

Result<Decision> abort_attempt(Storage& storage, const AttemptKey& key, const DecisionStamp& stamp,
                               std::string cause, FolderOfAttempt folder, const BeforeCommit& before_commit) {
  auto info = inspect_attempt(storage, key);
  if (!info.ok() && info.status().code() != Code::not_found) return info.status();
  if (info.ok() && info->is_complete_set()) {
    auto completed = complete_rank_local(storage, key, stamp, before_commit);
    const Code code = completed.status().code();
    const bool is_none = code == Code::corrupt || code == Code::not_found;
    if (!is_none) return completed;
  }
  const Decision aborted{key, stamp.nonce, stamp.root_id, stamp.unix_time_ns,
                         Tombstone{Tombstone::Reason::aborted, std::move(cause)}};
  if (folder == FolderOfAttempt::may_lack) return publish_decision(storage, aborted);
  auto published = publish_decision_in_folder(storage, aborted);
  if (published.status().code() == Code::not_found) return folder_gone(key, stamp.root_id);
  return published;
}

}  // namespace shoal::storage
