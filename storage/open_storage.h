// The storage of a root, by the root's name: a folder, or "s3://BUCKET/PREFIX".
#pragma once

#include <memory>
#include <string>

#include "shoal/hash.h"
#include "shoal/status.h"
#include "storage/files/call_watch.h"
#include "storage/files/file_system.h"
#include "storage/storage.h"

namespace shoal::storage {

// What a storage needs is destroyed after it.
struct OpenedStorage {
  std::unique_ptr<FileSystem> disk, file_system;  // null for an object store
  std::unique_ptr<Storage> storage;
};

// Code::not_found: the folder or the bucket does not exist. `nonce` is a new random number of this process.
// `watch`, if any, sees each call on a file system and each request to an object store, and must outlive the
// storage.
Result<OpenedStorage> open_storage(const std::string& root, const Nonce& nonce, CallWatch* watch = nullptr);

// Makes the folder of a root, whose parent must exist, and syncs the parent: otherwise a power failure could
// take the root with all that is durable in it. A folder that exists, and an object store, need no creation.
// Code::not_found: the parent does not exist. Code::refused: it cannot be made.
Status make_root_folder(const std::string& root);

}  // namespace shoal::storage
