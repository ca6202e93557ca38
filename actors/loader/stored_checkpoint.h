// StoredCheckpoint: a committed checkpoint, shared by all loads of it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "plan/reading/locate.h"
#include "storage/decisions/decision.h"

namespace shoal::actors {

// A decision and what follows from it by arithmetic; each part is computed when it is first needed. Not
// thread-safe.
class StoredCheckpoint {
 public:
  explicit StoredCheckpoint(std::shared_ptr<const storage::Decision> committed);

  const AttemptKey& key() const { return decision_->key; }
  const storage::Decision& decision() const { return *decision_; }
  const storage::Manifest& manifest() const { return decision_->manifest(); }
  // As storage::metadata_of without values. Its digest covers every file, so it is computed once for all
  // loads of the checkpoint.
  const Metadata& metadata();
  plan::Locator& locator();
  // The manifest's entry for this file of the rank's plan; nullptr: it has none.
  const storage::FileEntry* file_of(Rank rank, uint32_t index) const;
  // The key of a piece in its file. Only the last file of a rank may hold several pieces of one value; their
  // keys then differ from the fqn.
  Result<std::string> key_of(const plan::StoredPiece& piece, const std::string& fqn);

 private:
  using KeysOfRank = std::map<std::pair<std::string, Box>, std::string>;  // by fqn and box
  const std::shared_ptr<const storage::Decision> decision_;
  std::optional<Metadata> metadata_;
  std::unique_ptr<plan::Locator> locator_;
  std::map<Rank, KeysOfRank> keys_;
};

}  // namespace shoal::actors
