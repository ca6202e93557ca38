// Opens the RocksDB catalog on a given environment, so that a test can supply a failing file system.
#pragma once

#include <rocksdb/env.h>

#include <memory>
#include <string>

#include "storage/catalog/catalog.h"

namespace shoal::storage {

// Like open_rocksdb_catalog. `env` must outlive the catalog, and the parent folder of `path` must exist in
// it.
Result<std::unique_ptr<Catalog>> open_rocksdb_catalog_in(rocksdb::Env* env, const std::string& path,
                                                         const RootId& root_id);

}  // namespace shoal::storage
