// Rank manifests: in a rank-local save each rank lists what it wrote in its own file.
// docs/reference/format.md, "Rank manifests".
//
// A save of W ranks is complete once the attempt's folder holds "rank-R-of-W.manifest.shoal" of every rank R.
// The first process that then reads the set merges it into the attempt's one manifest, which is created
// exclusively like any other decision. An earlier tombstone therefore voids the set, and readers of
// checkpoints need only one kind of manifest. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "storage/decisions/decision.h"
#include "storage/storage.h"

namespace shoal::storage {

struct RankManifest {
  AttemptKey key;
  Rank rank = 0;
  uint32_t world_size = 0;
  Nonce nonce;
  RootId root_id;
  int64_t unix_time_ns = 0;
  LayoutPtr layout;
  uint32_t rule_version = kRuleVersion;
  SaveOptions options;           // mode rank_local
  std::vector<FileEntry> files;  // of this rank; all derived; by index
  uint64_t payload_bytes = 0;
  UserMetadata user = {};
};

struct RankManifestName {
  Rank rank = 0;
  uint32_t world_size = 0;
};
std::string rank_manifest_name(Rank rank, uint32_t world_size);  // "rank-00007-of-00016.manifest.shoal"
std::optional<RankManifestName> parse_rank_manifest_name(std::string_view name);
std::string rank_manifest_path(const AttemptKey& key, const RankManifestName& name);  // under the root

// Code::invalid_argument if decode_rank_manifest would reject the result.
Result<Bytes> encode_rank_manifest(const RankManifest& manifest);
// Checks magic, version, lengths, digest and every value. `path` is for errors.
Result<RankManifest> decode_rank_manifest(ByteView bytes, const std::string& path);
// Code::corrupt if the file contains another attempt, rank or world size than its name.
Result<RankManifest> read_rank_manifest(Storage& storage, const AttemptKey& key,
                                        const RankManifestName& name);

// Publishes the manifest durably, reads back the file under its name, and checks the sizes and headers of the
// shards against it. An existing manifest with the same content counts as success. Code::already_exists if it
// differs.
Status publish_rank_manifest(Storage& storage, const RankManifest& manifest);

// Ranks of a world of this size whose manifests are missing, ascending. Code::not_found if the folder does
// not exist.
Result<std::vector<Rank>> list_missing_manifests(Storage& storage, const AttemptKey& key,
                                                 uint32_t world_size);

// Merges the rank manifests of an attempt. Code::not_found names the ranks whose manifests are missing, or a
// file that the folder does not list with the size that its rank manifest states.
// Code::corrupt names a manifest that is damaged, belongs to another attempt, or contradicts the others; also
// two world sizes in one folder, or a value that the pieces do not cover.
Result<Manifest> merge_rank_manifests(Storage& storage, const AttemptKey& key);

// Returns the attempt's decision. If there is none and the set is complete, first publishes its merged
// manifest; another process may do the same concurrently. Errors of merge_rank_manifests while the set is
// incomplete. Precondition: the caller has seen rank manifests in the folder. If the folder no longer exists,
// the attempt was completed and deleted, and the result is that tombstone.
struct DecisionStamp {
  Nonce nonce;
  RootId root_id;
  int64_t unix_time_ns = 0;
};
// Called after a manifest has been computed and before it is published. An error prevents the publication and
// is returned.
using BeforeCommit = std::function<Status()>;
// Calls before_commit; OK if there is none. Replaces codes that callers would take for errors of the
// attempt's own files by Code::refused.
Status allow_commit(const BeforeCommit& before_commit);
Result<Decision> complete_rank_local(Storage& storage, const AttemptKey& key, const DecisionStamp& stamp,
                                     const BeforeCommit& before_commit = nullptr);

// Ends an attempt that no process continues. A complete set is merged, because it is already a checkpoint.
// Any other attempt gets a tombstone with this cause. Returns the final decision. After an error nothing was
// published: the state could not be read, or a newer program wrote a manifest of the set.
//
// `folder`: whether the caller knows that the attempt had a folder. If that is gone, the attempt was decided
// and deleted since. Then nothing is published, and the answer is is_folder_gone (rank_manifest_set.h).
enum class FolderOfAttempt : uint8_t { may_lack, exists };
Result<Decision> abort_attempt(Storage& storage, const AttemptKey& key, const DecisionStamp& stamp,
                               std::string cause, FolderOfAttempt folder = FolderOfAttempt::may_lack,
                               const BeforeCommit& before_commit = nullptr);

}  // namespace shoal::storage
