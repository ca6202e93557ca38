#include "actors/loader/stored_checkpoint.h"

#include <algorithm>

namespace shoal::actors {

namespace {
constexpr size_t kMaxRanksWithKeys = 4096;  // beyond this, all are dropped and computed again
}  // namespace

StoredCheckpoint::StoredCheckpoint(std::shared_ptr<const storage::Decision> committed)
    : decision_(std::move(committed)) {}

const Metadata& StoredCheckpoint::metadata() {
  if (!metadata_) metadata_ = storage::metadata_of(*decision_, false);
  return *metadata_;
}

plan::Locator& StoredCheckpoint::locator() {
  if (!locator_) locator_ = std::make_unique<plan::Locator>(manifest().world, manifest().options);
  return *locator_;
}

const storage::FileEntry* StoredCheckpoint::file_of(Rank rank, uint32_t index) const {
  // Files ascend by rank. Of one rank, derived files come first, by index.
  auto before = [](const storage::FileEntry& file, const std::pair<Rank, uint32_t>& wanted) {
    if (file.rank != wanted.first) return file.rank < wanted.first;
    const uint32_t* number = std::get_if<uint32_t>(&file.contents);
    return number != nullptr && *number < wanted.second;
  };
  const std::vector<storage::FileEntry>& files = manifest().files;
  auto found = std::lower_bound(files.begin(), files.end(), std::pair(rank, index), before);
  if (found == files.end() || found->rank != rank) return nullptr;
  const uint32_t* number = std::get_if<uint32_t>(&found->contents);
  return number != nullptr && *number == index ? &*found : nullptr;
}

Result<std::string> StoredCheckpoint::key_of(const plan::StoredPiece& piece, const std::string& fqn) {
  if (piece.file + 1 < kMaxFilesPerRank) return fqn;
  auto known = keys_.find(piece.rank);
  if (known == keys_.end()) {
    if (keys_.size() >= kMaxRanksWithKeys) keys_.clear();
    SHOAL_ASSIGN_OR_RETURN(SavePlanPtr plan, locator().plan_of(piece.rank));
    const Layout& layout = manifest().world->layout_of(piece.rank);
    std::vector<std::string> keys = item_keys(layout, *plan);
    known = keys_.try_emplace(piece.rank).first;
    for (size_t i = 0; i < keys.size(); ++i) {
      const WriteItem& item = plan->items[i];
      known->second[{value_fqn(layout.entries()[item.entry], piece.rank), item.box}] = std::move(keys[i]);
    }
  }
  auto found = known->second.find({fqn, piece.box});
  return found == known->second.end() ? fqn : found->second;
}

}  // namespace shoal::actors
