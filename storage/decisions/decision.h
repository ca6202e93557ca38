// Decisions: the one file that decides an attempt. docs/reference/format.md, "Decisions".
//
// The first file under an attempt's decision name is final, whichever process wrote it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "plan/layout/codec.h"
#include "shoal/hash.h"
#include "shoal/metadata.h"
#include "shoal/roster.h"
#include "shoal/save_plan.h"
#include "shoal/status.h"
#include "storage/storage.h"

namespace shoal::storage {

inline constexpr uint32_t kDecisionFormatVersion = 1;
inline constexpr uint64_t kMaxDecisionBytes = uint64_t{1} << 30;
inline constexpr size_t kMaxCauseBytes = 4096;  // a longer cause is cut

struct FilePiece {  // of a listed file
  std::string fqn;
  std::string key;
  Box box;
};
struct FileEntry {
  std::string name;  // in the attempt's folder; shard_file_name(rank, index) for a derived file
  uint64_t size = 0;
  Hash128 header_digest;
  Rank rank = 0;
  // Derived: the file's index in the rank's plan. Listed: the pieces of the file.
  std::variant<uint32_t, std::vector<FilePiece>> contents;
};
struct EncodedManifest {
  std::string path;  // for errors
  Bytes file;
  plan::EncodedWorld world;  // views into `file`
  uint32_t world_size = 0;
  uint32_t files = 0;
};
struct Manifest {
  std::shared_ptr<const World> world;  // nullptr in an encoded manifest, whose `files` are empty too
  std::shared_ptr<const EncodedManifest> encoded = nullptr;  // set in an encoded manifest only
  uint32_t rule_version = kRuleVersion;
  SaveOptions options;
  // Ascending by rank. Within a rank, derived files by index come before listed files by name.
  std::vector<FileEntry> files;
  uint64_t payload_bytes = 0;
  UserMetadata user = {};
};
struct Tombstone {
  enum class Reason : uint8_t { aborted = 0, deleted = 1 };
  Reason reason = Reason::aborted;
  std::string cause;
};
using DecisionBody = std::variant<Manifest, Tombstone>;
struct Decision {
  AttemptKey key;
  Nonce nonce;
  RootId root_id;
  int64_t unix_time_ns = 0;  // for display; it orders nothing
  DecisionBody body;

  bool committed() const { return std::holds_alternative<Manifest>(body); }
  // Also true if the checkpoint was deleted later.
  bool was_committed() const { return committed() || tombstone().reason == Tombstone::Reason::deleted; }
  const Manifest& manifest() const { return std::get<Manifest>(body); }
  const Tombstone& tombstone() const { return std::get<Tombstone>(body); }
};

inline constexpr std::string_view kDecisionName = "manifest.shoal";

// Code::invalid_argument if decode_decision would reject the result. A cause is shortened, and its control
// characters are removed.
Result<Bytes> encode_decision(const Decision& decision);
// Checks magic, version, lengths, digest and every value. Code::version names both versions. `path` is for
// errors.
Result<Decision> decode_decision(ByteView bytes, const std::string& path);
// Like decode_decision, but leaves the layouts and files of a manifest encoded, for callers that pass them on
// unread. The digest proves that the bytes are those that were written. Only decode_rest checks that the
// layouts and files are valid.
Result<Decision> open_decision(Bytes bytes, std::string path);
Result<Decision> decode_rest(const Decision& opened);  // keeps `encoded`

// Reads the state from the first kRecordHeadBytes alone (storage/decisions/record.h), which have their own
// digest.
enum class DecisionState : uint8_t { committed = 1, aborted = 2, deleted = 3 };
Result<DecisionState> read_decision_state(ByteView first, uint64_t file_bytes, const std::string& path);

// Publishes a decision and returns the final one: this one, or the one that came first. The folder has been
// synced.
Result<Decision> publish_decision(Storage& storage, const Decision& decision);
// Like publish_decision, but in an existing folder, such as one that holds shards. Code::not_found if the
// folder does not exist. Manifests are published with this function: if the folder is gone, the checkpoint
// was deleted, and a process that slept meanwhile must not restore it.
Result<Decision> publish_decision_in_folder(Storage& storage, const Decision& decision);
// Replaces a manifest by a tombstone with reason deleted, durably. This is the only change that a decision
// may undergo. false: there was no manifest any more. Code::not_found if the attempt is undecided or its
// folder is gone.
Result<bool> mark_deleted(Storage& storage, const Decision& tombstone);
// Code::not_found while the attempt is undecided. Syncs the folder first, so that the returned decision is
// durable.
Result<Decision> read_decision(Storage& storage, const AttemptKey& key);
// Like read_decision, but decodes with open_decision.
Result<Decision> read_decision_encoded(Storage& storage, const AttemptKey& key);

// Metadata::contents_digest. Precondition: the manifest is not encoded.
Hash128 contents_digest_of(const Manifest& manifest);
// Precondition: committed. Without `lists_values`, and for an encoded manifest, the result lists no values.
Metadata metadata_of(const Decision& decision, bool lists_values = true);

}  // namespace shoal::storage
