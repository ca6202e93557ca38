// Decisions: the one file that says what became of an attempt. docs/format.md, "Decisions".
//
// The first file under an attempt's decision name decides for ever, whoever wrote it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "plan/metadata.h"
#include "plan/roster.h"
#include "plan/save_plan.h"
#include "storage/storage.h"

namespace shoal {

inline constexpr uint32_t kDecisionFormatVersion = 1;
inline constexpr uint64_t kMaxDecisionBytes = uint64_t{1} << 30;
inline constexpr size_t kMaxCauseBytes = 4096;  // a longer cause is cut

struct FilePiece {  // of a listed file
  std::string fqn;
  std::string key;
  Box box;
};
struct FileEntry {
  std::string name;  // in the attempt's folder
  uint64_t size = 0;
  Hash128 header_digest;
  Rank rank = 0;
  std::variant<uint32_t, std::vector<FilePiece>> contents;  // derived: file index of the rank's plan; or listed
};
struct Manifest {
  std::shared_ptr<const World> world;
  uint32_t rule_version = kRuleVersion;
  SaveOptions options;
  std::vector<FileEntry> files;  // ascending by (rank, file index)
  uint64_t payload_bytes = 0;
};
struct Tombstone {
  enum class Reason : uint8_t { aborted = 0, deleted = 1 };
  Reason reason = Reason::aborted;
  std::string cause;
};
struct Decision {
  AttemptKey key;
  Nonce nonce;
  RootId root_id;
  int64_t unix_time_ns = 0;  // informative; orders nothing
  std::variant<Manifest, Tombstone> body;

  bool committed() const { return std::holds_alternative<Manifest>(body); }
  const Manifest& manifest() const { return std::get<Manifest>(body); }
  const Tombstone& tombstone() const { return std::get<Tombstone>(body); }
};

Result<Bytes> encode_decision(const Decision& decision);
// Checks magic, version (Code::version names both), lengths, digest, and every value. `path` is for errors.
Result<Decision> decode_decision(ByteView bytes, const std::string& path);

// Publishes, and returns the decision that stands: ours, or whoever was first (its folder synced).
Result<Decision> publish_decision(Storage& storage, const Decision& decision);
// Code::not_found while undecided.
Result<Decision> read_decision(Storage& storage, const AttemptKey& key);

Metadata metadata_of(const Decision& decision);  // precondition: committed

}  // namespace shoal
