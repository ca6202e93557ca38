// Rank manifests: in a rank-local save each rank says in a file of its own what it has written.
// docs/reference/format.md, "Rank manifests".
//
// A save of W ranks is complete once "rank-R-of-W.manifest.shoal" of every rank R lies in the attempt's
// folder. Whoever then reads them first merges them into the attempt's one manifest, which is created
// exclusively like any other decision: so a tombstone that came before voids the set, and all that reads
// checkpoints needs to know one kind. Any thread.
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
  std::vector<FileEntry> files;  // of this rank, derived, by index
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

// Code::invalid_argument where decode_rank_manifest would refuse it.
Result<Bytes> encode_rank_manifest(const RankManifest& manifest);
// Checks magic, version, lengths, digest and every value. `path` is for errors.
Result<RankManifest> decode_rank_manifest(ByteView bytes, const std::string& path);
// Code::corrupt where the file says another attempt, rank or world than its name.
Result<RankManifest> read_rank_manifest(Storage& storage, const AttemptKey& key,
                                        const RankManifestName& name);

// Publishes it durably, then reads back what stands, and compares the shards with it: sizes and headers. One
// that stands already and says the same of the same files is as good. Code::already_exists where it does not.
Status publish_rank_manifest(Storage& storage, const RankManifest& manifest);

// Ranks of this world whose manifests are missing, ascending. Code::not_found where the folder is missing.
Result<std::vector<Rank>> list_missing_manifests(Storage& storage, const AttemptKey& key,
                                                 uint32_t world_size);

// What the set of an attempt makes together. Code::not_found names the ranks whose manifests are missing;
// Code::corrupt one that is damaged, of another attempt, doubled (two world sizes in one folder), that does
// not agree with the others, or the value that no rank's pieces cover.
Result<Manifest> merge_rank_manifests(Storage& storage, const AttemptKey& key);

// The decision that stands; where none does and the set is complete: its manifest, published by this call or
// by somebody at the same time. Errors as of merge_rank_manifests while it is not. Precondition: manifests of
// ranks stood there; where the folder has gone, it was completed and deleted since, and that is the answer.
struct DecisionStamp {
  Nonce nonce;
  RootId root_id;
  int64_t unix_time_ns = 0;
};
// Called once a manifest has been worked out, before it is published: an error refuses that, and is the
// answer.
using BeforeCommit = std::function<Status()>;
// Its error, by a code that does not read as one of the attempt's own files; OK where there is none to call.
Status allow_commit(const BeforeCommit& before_commit);
Result<Decision> complete_rank_local(Storage& storage, const AttemptKey& key, const DecisionStamp& stamp,
                                     const BeforeCommit& before_commit = nullptr);

// Ends an attempt that nobody goes on with: a complete set is merged, for it is a checkpoint already;
// anything else gets a tombstone with this cause. What stands is the answer. An error where that cannot be
// told now, or where a newer program wrote a manifest of the set: then nothing was published.
Result<Decision> abort_attempt(Storage& storage, const AttemptKey& key, const DecisionStamp& stamp,
                               std::string cause, const BeforeCommit& before_commit = nullptr);

}  // namespace shoal::storage
