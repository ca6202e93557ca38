#include "actors/node/lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/owned_fd.h"
#include "local/status/node_query.h"

namespace shoal::actors {

namespace {

// The holder writes its pid right after it takes the lock. If the file is empty, read it again this many
// times.
constexpr int kPidReads = 20;
constexpr std::chrono::milliseconds kPidReadInterval{5};
constexpr int kLockTries = 100;  // each fails only if a node removes the file as unused at that moment

int pid_in(int fd) {
  for (int i = 0; i < kPidReads; ++i) {
    char text[16] = {};
    ssize_t size = pread(fd, text, sizeof(text) - 1, 0);
    int pid = 0;
    if (size > 0 && std::from_chars(text, text + size, pid).ec == std::errc() && pid > 0) return pid;
    std::this_thread::sleep_for(kPidReadInterval);
  }
  return 0;
}

Status cannot_use(const std::string& lock_file) {
  const bool is_full = errno == ENOSPC || errno == EDQUOT;
  return Status(is_full ? Code::no_space : Code::io,
                fmt::format("cannot {} the lock file {}: {}{}", is_full ? "write" : "use", lock_file,
                            std::strerror(errno), is_full ? local::kFreeRuntimeFolder : ""));
}

// The lock file, locked. nullopt: another process holds it. An invalid descriptor: it does not exist.
Result<std::optional<base::OwnedFd>> lock_of(const std::string& lock_file, int create) {
  for (int tries = 0; tries < kLockTries; ++tries) {
    base::OwnedFd fd(open(lock_file.c_str(), O_RDWR | create | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd.valid() && errno == ENOENT && create == 0) return std::optional(base::OwnedFd());
    if (!fd.valid()) return cannot_use(lock_file);
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return cannot_use(lock_file);
      return std::optional<base::OwnedFd>();
    }
    struct stat locked {};
    struct stat named {};
    if (fstat(fd.get(), &locked) != 0) return cannot_use(lock_file);
    const bool has_name = lstat(lock_file.c_str(), &named) == 0;
    if (has_name && locked.st_ino == named.st_ino && locked.st_dev == named.st_dev) {
      return std::optional(std::move(fd));
    }
  }
  return Status(Code::unavailable, lock_file + ": other processes remove or replace it again and again");
}

// "HASH" or "HASH-reader-HASH" (local::node_paths).
bool is_stem_of_node(std::string_view stem) {
  const auto is_hash = [](std::string_view text) {
    return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  };
  constexpr std::string_view kInfix = "-reader-";
  if (is_hash(stem)) return true;
  return stem.size() == 32 + kInfix.size() && stem.substr(16, kInfix.size()) == kInfix &&
         is_hash(stem.substr(0, 16)) && is_hash(stem.substr(16 + kInfix.size()));
}

bool was_changed_since(const std::string& path, std::chrono::system_clock::time_point time) {
  std::error_code error;
  const auto changed = std::filesystem::last_write_time(path, error);
  return !error && changed >= std::chrono::file_clock::from_sys(time);
}

Status remove_file(const std::string& path, std::vector<std::string>* removed) {
  if (unlink(path.c_str()) == 0) {
    removed->push_back(path);
    return ok_status();
  }
  if (errno == ENOENT) return ok_status();
  return Status(Code::io, fmt::format("cannot remove {}: {}", path, std::strerror(errno)));
}

}  // namespace

Result<NodeLock> NodeLock::take(const std::string& lock_file, const std::string& root) {
  SHOAL_ASSIGN_OR_RETURN(std::optional<base::OwnedFd> fd, lock_of(lock_file, O_CREAT));
  if (!fd) {
    base::OwnedFd held(open(lock_file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    return Status(Code::already_exists, fmt::format("a node of this host serves {} already: pid {} holds {}",
                                                    root, pid_in(held.get()), lock_file));
  }
  std::string pid = fmt::format("{}\n", getpid());
  if (ftruncate(fd->get(), 0) != 0 ||
      pwrite(fd->get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return cannot_use(lock_file);
  }
  return NodeLock(std::move(*fd));
}

Status remove_unused_locks(const std::string& folder, const std::string& own_lock,
                           std::chrono::system_clock::time_point used_until,
                           std::vector<std::string>* removed) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string path = entry->path();
    if (path == own_lock || entry->path().extension() != ".lock") continue;
    if (!is_stem_of_node(entry->path().stem().string()) || was_changed_since(path, used_until)) continue;
    const auto held = lock_of(path, 0);
    // Of another user, or not a file; or a node has it.
    if (!held.ok() || !*held || !(*held)->valid() || was_changed_since(path, used_until)) continue;
    const std::string log = fs::path(path).replace_extension(".log");
    if (!was_changed_since(log, used_until)) SHOAL_RETURN_IF_ERROR(remove_file(log, removed));
    SHOAL_RETURN_IF_ERROR(remove_file(path, removed));
  }
  if (!error) return ok_status();
  return Status(Code::io, fmt::format("{}: cannot look for unused files: {}", folder, error.message()));
}

}  // namespace shoal::actors
