// A catalog whose calls a CallWatch sees, each with the catalog's path: its disk may hang as the root's may.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "storage/catalog/catalog.h"
#include "storage/files/call_watch.h"

namespace shoal::storage {

// `watch` outlives the catalog. `path` is named in its lines.
std::unique_ptr<Catalog> make_watched_catalog(std::unique_ptr<Catalog> real, std::string path,
                                              CallWatch& watch);

// As open_sound_catalog, which is one call here: it reads all of an old catalog. None stays none.
Result<std::unique_ptr<Catalog>> open_watched_catalog(const std::string& path, bool may_replace_others,
                                                      const RootId& root_id, Storage& storage,
                                                      CallWatch& watch,
                                                      const std::function<void(const std::string&)>& warn);

}  // namespace shoal::storage
