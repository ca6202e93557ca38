#include "storage/catalog/catalog_recovery.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/owned_fd.h"

namespace shoal::storage {

namespace {

namespace fs = std::filesystem;

Status io_error(const std::string& path, std::string_view action, const std::error_code& error) {
  return Status(Code::io, fmt::format("catalog {}: cannot {}: {}", path, action, error.message()));
}

bool has_suffix(std::string_view name, std::string_view suffix) {
  return name.size() > suffix.size() && name.ends_with(suffix);
}

// The file names of a RocksDB database.
bool is_catalog_file(std::string_view name) {
  for (std::string_view whole : {"CURRENT", "IDENTITY", "LOCK", "LOG"}) {
    if (name == whole) return true;
  }
  for (std::string_view prefix : {"LOG.old.", "MANIFEST-", "OPTIONS-"}) {
    if (name.starts_with(prefix)) return true;
  }
  return has_suffix(name, ".sst") || has_suffix(name, ".log") || has_suffix(name, ".dbtmp");
}

enum class Place : uint8_t { absent, empty, catalog };

// What exists at the path. Code::refused, naming the entry, if it must not be replaced.
Result<Place> inspect(const std::string& path) {
  std::error_code error;
  fs::file_status found = fs::symlink_status(path, error);
  if (found.type() == fs::file_type::not_found) return Place::absent;
  if (error) return io_error(path, "examine it", error);
  if (!fs::is_directory(path, error)) {
    return Status(Code::refused, fmt::format("catalog {}: it is not a folder", path));
  }
  Place place = Place::empty;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    std::string name = at->path().filename();
    if (!is_catalog_file(name)) {
      return Status(Code::refused,
                    fmt::format("catalog {}: it holds {}, which does not belong to a catalog", path, name));
    }
    place = Place::catalog;
  }
  if (error) return io_error(path, "list it", error);
  return place;
}

// Removes a catalog or the rest of one, and nothing else.
Status remove_catalog(const std::string& path) {
  SHOAL_ASSIGN_OR_RETURN(Place place, inspect(path));
  std::error_code error;
  if (place != Place::absent) fs::remove_all(path, error);
  return error ? io_error(path, "remove it", error) : ok_status();
}

Status move_folder(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) return io_error(from, fmt::format("move it to {}", to), error);
  const base::OwnedFd folder(::open(fs::path(to).parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid())
    return ok_status();  // a relative name, or one that may not be read: the move has succeeded
  (void)::fsync(folder.get());
  return ok_status();
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

Status in_use(const std::string& path) {
  return Status(Code::busy,
                fmt::format("catalog {}: another process has it open, a node or a rebuild", path));
}

// Holds the lock of a catalog that no process has open, so that no other process opens it.
class CatalogLock {
 public:
  static Result<std::unique_ptr<CatalogLock>> take(const std::string& path) {
    std::unique_ptr<CatalogLock> lock(new CatalogLock());
    rocksdb::Status status = rocksdb::Env::Default()->LockFile(path + "/LOCK", &lock->lock_);
    if (status.ok()) return lock;
    lock->lock_ = nullptr;
    return in_use(path);
  }
  ~CatalogLock() {
    if (lock_ != nullptr) (void)rocksdb::Env::Default()->UnlockFile(lock_);
  }
  CatalogLock(const CatalogLock&) = delete;

 private:
  CatalogLock() = default;
  rocksdb::FileLock* lock_ = nullptr;
};

// Opens an existing catalog without creating anything. Records in `report` what it was.
Status look_at_old(const std::string& path, bool may_replace_others, const RootId& root_id,
                   CatalogRebuild* report) {
  using Before = CatalogRebuild::Before;
  SHOAL_ASSIGN_OR_RETURN(Place place, inspect(path));
  if (place != Place::catalog) return ok_status();
  Status opened = open_rocksdb_catalog(path, root_id).status();
  report->before = Before::sound;
  if (opened.ok()) return opened;
  if (opened.code() == Code::busy) return in_use(path);
  report->before_cause = opened.message();
  report->before = opened.code() == Code::refused ? Before::of_another_run : Before::damaged;
  bool may_replace = opened.code() == Code::corrupt || opened.code() == Code::io ||
                     (opened.code() == Code::refused && may_replace_others);
  return may_replace ? ok_status() : opened;
}

Status record_root(Catalog& catalog, Storage& storage, CatalogRebuild* report) {
  SHOAL_ASSIGN_OR_RETURN(AttemptList listed, list_attempts(storage));
  for (const AttemptInfo& info : listed.attempts) {
    if (info.state == AttemptInfo::State::undecided) {
      report->undecided.push_back(info);
      continue;
    }
    auto decision = read_decision(storage, info.key);
    if (decision.status().code() == Code::not_found) continue;  // removed meanwhile
    if (decision.status().code() == Code::corrupt) {
      report->damaged.emplace_back(info.key, decision.status());
      continue;
    }
    if (!decision.ok()) return decision.status();
    SHOAL_RETURN_IF_ERROR(catalog.record_unsynced(*decision));
    report->decided.push_back(catalog_entry_of(*decision));
    if (!decision->committed()) continue;
    for (const FileEntry& file : decision->manifest().files) report->file_bytes += file.size;
  }
  for (auto& [key, status] : listed.damaged) {
    if (status.code() == Code::version) return status;
    report->damaged.emplace_back(key, std::move(status));
  }
  std::sort(report->damaged.begin(), report->damaged.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  return catalog.sync();
}

}  // namespace

namespace {

Result<std::unique_ptr<Catalog>> open_caught_up(const std::string& path, const RootId& root_id,
                                                Storage& storage) {
  SHOAL_ASSIGN_OR_RETURN(auto catalog, open_rocksdb_catalog(path, root_id));
  SHOAL_RETURN_IF_ERROR(catch_up(*catalog, storage).status());
  return catalog;
}

}  // namespace

Result<std::unique_ptr<Catalog>> open_sound_catalog(const std::string& given_path, bool may_replace_others,
                                                    const RootId& root_id, Storage& storage,
                                                    const std::function<void(const std::string&)>& warn) {
  const std::string path = without_slash(given_path);
  auto without_one = [&](const Status& why) -> Result<std::unique_ptr<Catalog>> {
    if (why.code() != Code::io && why.code() != Code::no_space) return why;
    // The root is readable, so only the catalog failed.
    SHOAL_RETURN_IF_ERROR(list_attempts(storage).status());
    warn(fmt::format("the job continues without a catalog: {}", why.message()));
    return std::unique_ptr<Catalog>();
  };
  auto opened = open_rocksdb_catalog(path, root_id);
  bool is_of_another_run = opened.status().code() == Code::refused;
  if (opened.ok()) {
    // Once the catalog was opened, a refusal means that it holds other decisions than the root.
    Status caught_up = catch_up(**opened, storage).status();
    if (caught_up.ok()) return opened;
    opened = caught_up;
  }
  const Status why = opened.status();
  bool may_replace = is_of_another_run ? may_replace_others
                                       : why.code() == Code::corrupt || why.code() == Code::io ||
                                             why.code() == Code::refused;
  if (!may_replace) return without_one(why);
  SHOAL_ASSIGN_OR_RETURN(Place place, inspect(path));
  if (place != Place::catalog) return without_one(why);
  const std::string aside = path + ".aside";
  Status moved = remove_catalog(aside);
  if (moved.ok()) moved = move_folder(path, aside);
  if (!moved.ok()) return without_one(moved.with_context(why.message()));
  auto fresh = open_caught_up(path, root_id, storage);
  if (!fresh.ok()) return without_one(fresh.status().with_context(why.message()));
  warn(fmt::format("this node moved the catalog to {} and starts an empty one: {}", aside, why.message()));
  return fresh;
}

Result<CatalogRebuild> rebuild_catalog(const std::string& given_path, bool may_replace_others,
                                       const RootId& root_id, Storage& storage) {
  const std::string path = without_slash(given_path), made = path + ".rebuild", old = path + ".replaced";
  CatalogRebuild report;
  SHOAL_RETURN_IF_ERROR(look_at_old(path, may_replace_others, root_id, &report));
  SHOAL_ASSIGN_OR_RETURN(Place leftover, inspect(made));
  if (leftover == Place::catalog) {
    SHOAL_RETURN_IF_ERROR(CatalogLock::take(made).status());  // fails if another rebuild is running
    SHOAL_RETURN_IF_ERROR(remove_catalog(made));
  }
  {
    SHOAL_ASSIGN_OR_RETURN(auto catalog, open_rocksdb_catalog(made, root_id));
    Status recorded = record_root(*catalog, storage, &report);
    catalog.reset();
    if (!recorded.ok()) {
      (void)remove_catalog(made);
      return recorded;
    }
  }
  SHOAL_RETURN_IF_ERROR(remove_catalog(old));
  SHOAL_ASSIGN_OR_RETURN(Place place, inspect(path));
  if (place == Place::absent) {
    SHOAL_RETURN_IF_ERROR(move_folder(made, path));
    return report;
  }
  {
    SHOAL_ASSIGN_OR_RETURN(auto lock, CatalogLock::take(path));
    SHOAL_RETURN_IF_ERROR(move_folder(path, old));
    SHOAL_RETURN_IF_ERROR(move_folder(made, path));
  }
  SHOAL_RETURN_IF_ERROR(remove_catalog(old));
  return report;
}

namespace {

// The time of the last change of a file in the folder. Its lock file does not count: it is empty, and taking
// it may make it.
Result<fs::file_time_type> last_change(const std::string& path) {
  std::error_code error;
  fs::file_time_type newest = fs::file_time_type::min();
  for (fs::directory_iterator file(path, error), end; !error && file != end; file.increment(error)) {
    if (file->path().filename() == "LOCK") continue;
    newest = std::max(newest, fs::last_write_time(file->path(), error));
    if (error) break;
  }
  if (error) return io_error(path, "examine it", error);
  return newest;
}

}  // namespace

Result<bool> remove_unused_catalog(const std::string& path,
                                   std::chrono::system_clock::time_point used_until) {
  const auto place = inspect(path);
  if (place.status().code() == Code::refused) return false;
  SHOAL_RETURN_IF_ERROR(place.status());
  if (*place != Place::catalog) return false;
  const bool is_left = path.ends_with(kUnusedEnd);  // by an interrupted removal
  const std::string unused = is_left ? path : path + std::string(kUnusedEnd);
  if (!is_left) SHOAL_RETURN_IF_ERROR(remove_catalog(unused));
  {
    // Held for as long as the rename takes, so that a node that starts hardly ever finds it held.
    const auto lock = CatalogLock::take(path);
    if (!lock.ok()) return false;
    SHOAL_ASSIGN_OR_RETURN(const fs::file_time_type changed, last_change(path));
    if (changed >= std::chrono::file_clock::from_sys(used_until)) return false;
    if (!is_left) SHOAL_RETURN_IF_ERROR(move_folder(path, unused));
  }
  SHOAL_RETURN_IF_ERROR(remove_catalog(unused));
  return true;
}

}  // namespace shoal::storage
