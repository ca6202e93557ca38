// StoredCheckpoint: a committed checkpoint as loads of it share it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "plan/reading/locate.h"
#include "storage/decisions/decision.h"

namespace shoal::actors {

// Its decision and what follows from that by arithmetic, each part worked out when it is first asked for. Not
// thread-safe.
class StoredCheckpoint {
 public:
  explicit StoredCheckpoint(std::shared_ptr<const storage::Decision> committed);

  const AttemptKey& key() const { return decision_->key; }
  const storage::Decision& decision() const { return *decision_; }
  const storage::Manifest& manifest() const { return decision_->manifest(); }
  plan::Locator& locator();
  // What the manifest lists as this file of the rank's plan; nullptr: nothing.
  const storage::FileEntry* file_of(Rank rank, uint32_t index) const;
  // The name of a piece in its file. Only a rank's last file may hold several pieces of one value, under
  // names of their own.
  Result<std::string> key_of(const plan::StoredPiece& piece, const std::string& fqn);

 private:
  using KeysOfRank = std::map<std::pair<std::string, Box>, std::string>;  // by fqn and box
  const std::shared_ptr<const storage::Decision> decision_;
  std::unique_ptr<plan::Locator> locator_;
  std::map<Rank, KeysOfRank> keys_;
};

}  // namespace shoal::actors
