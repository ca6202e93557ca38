#include "cli/root/other_root.h"

#include <fmt/format.h>

#include "admin/checkpoint_copy.h"
#include "base/root_name.h"
#include "storage/open_storage.h"

namespace shoal::cli {

namespace {

// not_found would say that OTHER does not exist.
Status make_folder(const std::string& path) {
  const Status made = storage::make_root_folder(path);
  return made.code() == Code::not_found ? Status(Code::refused, made.message()) : made;
}

// A prefix needs no creation, so a mistyped one would become a root.
Status check_prefix(const admin::OpenRoot& root, const std::string& path) {
  SHOAL_ASSIGN_OR_RETURN(const auto other, admin::open_copy_target(root, path, false));
  if (other.id != RootId{}) return ok_status();
  return Status(Code::refused,
                fmt::format("root {} has no checkpoints and no run yet: --create makes it a root",
                            other.storage->describe()));
}

}  // namespace

Result<admin::OpenRoot> open_other_root(const admin::OpenRoot& root, const std::string& path, bool create,
                                        bool changes) {
  const bool is_bucket = base::is_in_object_store(path);
  if (is_bucket && !create) SHOAL_RETURN_IF_ERROR(check_prefix(root, path));
  // open_copy_target checks this too, but after the folder is made.
  SHOAL_RETURN_IF_ERROR(admin::check_lies_outside(root.storage->describe(), path));
  if (create && changes) SHOAL_RETURN_IF_ERROR(make_folder(path));
  auto other = admin::open_copy_target(root, path, changes);
  if (other.status().code() != Code::not_found) return other;
  if (is_bucket) return Status(Code::refused, other.status().message());
  if (create && changes) {
    return Status(Code::refused,
                  fmt::format("folder {} cannot be opened, although --create was given: a symbolic "
                              "link to nothing, or it was removed",
                              path));
  }
  return Status(Code::not_found, fmt::format("folder {} does not exist: --create creates it", path));
}

}  // namespace shoal::cli
