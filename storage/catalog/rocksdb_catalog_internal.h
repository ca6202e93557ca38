// The RocksDB catalog on a chosen environment, so that a test can put a failing file system under it.
#pragma once

#include <rocksdb/env.h>

#include <memory>
#include <string>

#include "storage/catalog/catalog.h"

namespace shoal::storage {

// As open_rocksdb_catalog. `env` outlives the catalog; the folder of `path` must exist in it.
Result<std::unique_ptr<Catalog>> open_rocksdb_catalog_in(rocksdb::Env* env, const std::string& path,
                                                         const RootId& root_id);

}  // namespace shoal::storage
