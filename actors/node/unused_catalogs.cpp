#include "actors/node/unused_catalogs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/owned_fd.h"

namespace shoal::actors {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCatalogEnd = ".catalog", kAsideEnd = ".catalog.aside";
constexpr std::string_view kUnusedEnd = ".catalog.unused";  // it is being removed

Status failed_at(const fs::path& path, const std::error_code& error) {
  return Status(Code::io,
                fmt::format("cannot remove the unused catalog {}: {}", path.string(), error.message()));
}

// NAME of NAME.catalog, NAME.catalog.aside and NAME.catalog.unused; "": this is no catalog.
std::string stem_of(const std::string& name) {
  for (const std::string_view end : {kCatalogEnd, kAsideEnd, kUnusedEnd}) {
    if (name.size() > end.size() && name.ends_with(end)) return name.substr(0, name.size() - end.size());
  }
  return "";
}

// The time of the last change of the folder or of a file in it.
fs::file_time_type last_change(const fs::path& folder, std::error_code& error) {
  fs::file_time_type newest = fs::last_write_time(folder, error);
  for (fs::directory_iterator file(folder, error), end; !error && file != end; file.increment(error)) {
    newest = std::max(newest, file->last_write_time(error));
  }
  return newest;
}

// Gives the catalog a name that no node opens. Holds the lock of its node for that long only, so that a node
// that starts meanwhile hardly ever finds it held. false: a node holds it.
bool take_away(const fs::path& from, const fs::path& to, const std::string& lock_file,
               std::error_code& error) {
  const base::OwnedFd lock(open(lock_file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (lock.valid() && flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return false;
  fs::rename(from, to, error);
  return true;
}

}  // namespace

Status remove_unused_catalogs(const std::string& folder, const std::string& own_catalog,
                              std::chrono::system_clock::time_point now, std::vector<std::string>* removed) {
  const std::string own_stem = stem_of(fs::path(own_catalog).filename());
  const auto oldest_used = std::chrono::file_clock::from_sys(now - kUnusedCatalogAge);
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    const std::string name = path.filename(), stem = stem_of(name);
    if (stem.empty() || stem == own_stem || entry->is_symlink() || !entry->is_directory()) continue;
    const auto changed = last_change(path, error);
    if (error == std::errc::no_such_file_or_directory) {  // another node removes it
      error.clear();
      continue;
    }
    if (error) return failed_at(path, error);
    if (changed >= oldest_used) continue;
    const fs::path unused = fs::path(folder) / (stem + std::string(kUnusedEnd));
    if (path != unused) {
      fs::remove_all(unused, error);  // what a node that was killed has left
      if (error) return failed_at(unused, error);
      if (!take_away(path, unused, fs::path(folder) / (stem + ".lock"), error)) continue;
      if (error) return failed_at(path, error);
    }
    fs::remove_all(unused, error);
    if (error) return failed_at(unused, error);
    removed->push_back(path);
  }
  return error ? failed_at(folder, error) : ok_status();
}

}  // namespace shoal::actors
