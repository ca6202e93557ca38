// What a complete set of rank manifests makes, apart from where it was read
// (storage/decisions/rank_manifest.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "storage/decisions/rank_manifest.h"

namespace shoal::storage {

// `set`: by rank, each once; not empty. `folder` is for errors, which are those of merge_rank_manifests.
Result<Manifest> merge_rank_manifests(std::vector<RankManifest> set, const std::string& folder);

// What complete_rank_local answers where the folder has gone: a tombstone that stands nowhere. Shoal removes
// such a folder only after it has deleted the checkpoint, but a hand may have removed it: nobody may be told
// by this alone that the save was committed.
inline constexpr std::string_view kFolderGone = "its folder is gone";
inline bool is_folder_gone(const Decision& answer) {
  return !answer.committed() && answer.tombstone().reason == Tombstone::Reason::deleted &&
         answer.tombstone().cause == kFolderGone;
}

}  // namespace shoal::storage
