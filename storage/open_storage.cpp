#include "storage/open_storage.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
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

Status make_root_folder(const std::string& root) {
  if (base::is_in_object_store(root)) return ok_status();
  const bool is_made = ::mkdir(root.c_str(), 0777) == 0;
  const auto failed = [&](int number) {
    return Status(number == ENOENT ? Code::not_found : Code::refused,
                  fmt::format("cannot create root {}: {}", root, std::generic_category().message(number)));
  };
  if (!is_made && errno != EEXIST) return failed(errno);
  std::filesystem::path path = std::filesystem::path(root).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const std::string parent = path.parent_path().string();
  PosixFileSystem disk;
  std::unique_ptr<OpenFolder> folder;
  // Who may not list the parent cannot sync it.
  if (disk.open_root(parent.empty() ? "." : parent, &folder) != 0) return ok_status();
  const int number = folder->sync();
  return is_made && number != 0 ? failed(number) : ok_status();
}

}  // namespace shoal::storage
