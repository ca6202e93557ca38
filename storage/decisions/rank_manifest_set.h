// Merges a complete set of rank manifests, independent of the storage (storage/decisions/rank_manifest.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "storage/decisions/rank_manifest.h"

namespace shoal::storage {

// `set` holds each rank once, ascending, and is not empty. `folder` is for errors, which are those of
// merge_rank_manifests.
Result<Manifest> merge_rank_manifests(std::vector<RankManifest> set, const std::string& folder);

// The cause in the tombstone that complete_rank_local returns if the folder is gone. No file holds that
// tombstone. Shoal removes such a folder only after it deleted the checkpoint, but an operator may have
// removed it by hand. So this answer alone does not prove that the save was committed.
inline constexpr std::string_view kFolderGone = "its folder is missing";
inline Decision folder_gone(const AttemptKey& key, const RootId& root_id) {
  return {key, {}, root_id, 0, Tombstone{Tombstone::Reason::deleted, std::string(kFolderGone)}};
}
inline bool is_folder_gone(const Decision& answer) {
  return !answer.committed() && answer.tombstone().reason == Tombstone::Reason::deleted &&
         answer.tombstone().cause == kFolderGone;
}

}  // namespace shoal::storage
