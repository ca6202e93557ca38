// The root to which `shoal copy` and `shoal drain` copy, by the rules of their option --create.
#pragma once

#include <string>

#include "admin/root_reader.h"
#include "shoal/status.h"

namespace shoal::cli {

// Opens OTHER, as admin::open_copy_target. `create`: makes the folder if its parent exists, and lets an empty
// prefix of a bucket become a root. Without `changes` nothing is made, and a root that does not exist yet has
// a zero id. Code::not_found: the folder does not exist, and nothing could make it.
Result<admin::OpenRoot> open_other_root(const admin::OpenRoot& root, const std::string& other, bool create,
                                        bool changes);

}  // namespace shoal::cli
