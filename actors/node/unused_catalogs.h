// Removes the catalogs that runs of the past have left in the runtime folder: each root gets a catalog of its
// own there, and nobody else removes it. A catalog holds nothing that its root does not hold.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "shoal/status.h"

namespace shoal::actors {

// A node that starts within this time after the last one continues with the catalog.
inline constexpr std::chrono::hours kUnusedCatalogAge{24 * 7};

// Removes from `folder` the catalogs NAME.catalog and NAME.catalog.aside that nobody has changed for
// kUnusedCatalogAge before `now`, and whose NAME.lock no node holds. `own_catalog`, a path in `folder`, and
// what belongs to it stay. Appends the paths that were removed. A failure ends the work: the error has the
// path, and the next node tries again.
Status remove_unused_catalogs(const std::string& folder, const std::string& own_catalog,
                              std::chrono::system_clock::time_point now, std::vector<std::string>* removed);

}  // namespace shoal::actors
