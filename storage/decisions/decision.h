// Decisions: the one file that says what became of an attempt. docs/reference/format.md, "Decisions".
//
// The first file under an attempt's decision name decides for ever, whoever wrote it.
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
  std::string name;  // in the attempt's folder; shard_file_name(rank, index) where derived
  uint64_t size = 0;
  Hash128 header_digest;
  Rank rank = 0;
  std::variant<uint32_t, std::vector<FilePiece>>
      contents;  // derived: file index of the rank's plan; or listed
};
struct EncodedManifest {
  std::string path;  // for errors
  Bytes file;
  plan::EncodedWorld world;  // in the file
  uint32_t world_size = 0;
  uint32_t files = 0;
};
struct Manifest {
  std::shared_ptr<const World> world;  // nullptr where it was read encoded: then nor are `files` known yet
  std::shared_ptr<const EncodedManifest> encoded = nullptr;  // of one that was read encoded
  uint32_t rule_version = kRuleVersion;
  SaveOptions options;
  std::vector<FileEntry>
      files;  // ascending by rank; of a rank derived ones by file index, then listed ones by name
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
  int64_t unix_time_ns = 0;  // informative; orders nothing
  DecisionBody body;

  bool committed() const { return std::holds_alternative<Manifest>(body); }
  // Also where it was deleted since.
  bool was_committed() const { return committed() || tombstone().reason == Tombstone::Reason::deleted; }
  const Manifest& manifest() const { return std::get<Manifest>(body); }
  const Tombstone& tombstone() const { return std::get<Tombstone>(body); }
};

inline constexpr std::string_view kDecisionName = "manifest.shoal";

// Code::invalid_argument where decode_decision would refuse it. A cause is cut and cleaned of control
// characters.
Result<Bytes> encode_decision(const Decision& decision);
// Checks magic, version (Code::version names both), lengths, digest, and every value. `path` is for errors.
Result<Decision> decode_decision(ByteView bytes, const std::string& path);
// The same, but that a manifest's layouts and files are left as they are encoded: for who passes them on
// before, or instead of, looking into them. The bytes are those that were written, by their digest; that its
// layouts and files are valid is not known before decode_rest.
Result<Decision> open_decision(Bytes bytes, std::string path);
Result<Decision> decode_rest(const Decision& opened);  // keeps `encoded`

// Whether it was committed, aborted or deleted, from the first kRecordHeadBytes alone
// (storage/decisions/record.h), which have a digest of their own.
enum class DecisionState : uint8_t { committed = 1, aborted = 2, deleted = 3 };
Result<DecisionState> read_decision_state(ByteView first, uint64_t file_bytes, const std::string& path);

// Publishes, and returns the decision that stands: ours, or whoever was first (its folder synced).
Result<Decision> publish_decision(Storage& storage, const Decision& decision);
// The same in a folder that is there, as it is where shards lie: Code::not_found without it. So a manifest is
// published, for where the folder has gone the checkpoint was deleted, and whoever was asleep since must not
// bring it back.
Result<Decision> publish_decision_in_folder(Storage& storage, const Decision& decision);
// Puts a tombstone with reason deleted in the place of a manifest, durably: the one change that a decision
// may see. false: no manifest stood there any more. Code::not_found where nothing is decided, or all of it is
// gone.
Result<bool> mark_deleted(Storage& storage, const Decision& tombstone);
// Code::not_found while undecided. The folder is synced first, so that what is told lasts.
Result<Decision> read_decision(Storage& storage, const AttemptKey& key);
Result<Decision> read_decision_encoded(Storage& storage, const AttemptKey& key);  // by open_decision

// Precondition: committed. Its values are left out where nobody asks for them; one that was read encoded has
// none to list.
Metadata metadata_of(const Decision& decision, bool lists_values = true);

}  // namespace shoal::storage
