// A catalog whose calls a CallWatch observes under the catalog's path. The catalog's disk may hang like the
// root's.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "storage/catalog/catalog.h"
#include "storage/files/call_watch.h"

namespace shoal::storage {

// `watch` must outlive the catalog. The watch's log lines name `path`.
std::unique_ptr<Catalog> make_watched_catalog(std::unique_ptr<Catalog> real, std::string path,
                                              CallWatch& watch);

// Like open_sound_catalog. The watch counts it as one call, which reads the whole existing catalog. Returns
// nullptr if open_sound_catalog does.
Result<std::unique_ptr<Catalog>> open_watched_catalog(const std::string& path, bool may_replace_others,
                                                      const RootId& root_id, Storage& storage,
                                                      CallWatch& watch,
                                                      const std::function<void(const std::string&)>& warn);

}  // namespace shoal::storage
