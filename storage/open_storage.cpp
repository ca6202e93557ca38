#include "storage/open_storage.h"

#include <utility>

#include "base/root_name.h"
#include "storage/files/local_storage.h"
#include "storage/files/posix_file_system.h"
#include "storage/files/watched_file_system.h"
#include "storage/s3/s3_storage.h"

namespace shoal::storage {

Result<OpenedStorage> open_storage(const std::string& root, const Nonce& nonce, CallWatch* watch) {
  OpenedStorage opened;
  if (base::is_in_object_store(root)) {
    SHOAL_ASSIGN_OR_RETURN(S3Settings settings, find_s3_settings(root, process_environment()));
    SHOAL_ASSIGN_OR_RETURN(opened.storage, S3Storage::open(std::move(settings), {}, watch));
    return opened;
  }
  opened.disk = std::make_unique<PosixFileSystem>();
  if (watch != nullptr) opened.file_system = std::make_unique<WatchedFileSystem>(*opened.disk, *watch);
  FileSystem& used = watch != nullptr ? *opened.file_system : *opened.disk;
  SHOAL_ASSIGN_OR_RETURN(opened.storage, LocalStorage::open(used, root, nonce));
  return opened;
}

}  // namespace shoal::storage
