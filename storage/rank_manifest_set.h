// What a complete set of rank manifests makes, apart from where it was read (storage/rank_manifest.h).
#pragma once

#include <string>
#include <vector>

#include "storage/rank_manifest.h"

namespace shoal {

// `set`: by rank, each once; not empty. `folder` is for errors, which are those of merge_rank_manifests.
Result<Manifest> merge_rank_manifests(std::vector<RankManifest> set, const std::string& folder);

}  // namespace shoal
