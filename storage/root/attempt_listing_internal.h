// The attempts of a root from one listing of all its objects, where the storage has one
// (Storage::lists_trees).
#pragma once

#include <map>
#include <vector>

#include "storage/root/run_root.h"

namespace shoal::storage {

struct ListedAttempts {
  AttemptNames names;
  std::map<AttemptKey, std::vector<ObjectInfo>> files;  // of each folder, ascending by name
};
// `how`: with TreeDepth::names, `files` may lack some of a folder.
Result<ListedAttempts> list_tree_of_attempts(Storage& storage, TreeDepth how);
// Like inspect_attempt, from what the folder contains.
Result<AttemptInfo> inspect_listed(Storage& storage, const AttemptKey& key,
                                   const std::vector<ObjectInfo>& listed);

}  // namespace shoal::storage
