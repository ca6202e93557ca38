// Removes the catalogs that runs of the past have left in the runtime folder: each root gets a catalog of its
// own there, and nobody else removes it.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "shoal/status.h"

namespace shoal::actors {

// A node that starts within this time after the last one continues with the catalog.
inline constexpr std::chrono::hours kUnusedCatalogAge{24 * 30};

// Removes from `folder` the default catalogs of other roots, and what was moved aside or left of them, which
// nobody has changed for kUnusedCatalogAge before `now`. Leaves alone what is open, what holds anything but a
// catalog, and names that no node gives. `own_catalog`: the path of this node's, in `folder`. Appends the
// paths that were removed. A failure ends the work: the error has the path, and the next node tries again.
Status remove_unused_catalogs(const std::string& folder, const std::string& own_catalog,
                              std::chrono::system_clock::time_point now, std::vector<std::string>* removed);

}  // namespace shoal::actors
