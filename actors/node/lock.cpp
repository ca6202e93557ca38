#include "actors/node/lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "base/owned_fd.h"

namespace shoal::actors {

namespace {

// The holder writes its pid right after it takes the lock. If the file is empty, read it again this many
// times.
constexpr int kPidReads = 20;
constexpr std::chrono::milliseconds kPidReadInterval{5};

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

}  // namespace

Result<NodeLock> NodeLock::take(const std::string& lock_file, const std::string& root) {
  base::OwnedFd fd(open(lock_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return Status(Code::io, fmt::format("{}: {}", lock_file, std::strerror(errno)));
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return Status(Code::io, fmt::format("{}: {}", lock_file, std::strerror(errno)));
    return Status(Code::already_exists, fmt::format("a node of this host serves {} already: pid {} holds {}",
                                                    root, pid_in(fd.get()), lock_file));
  }
  std::string pid = fmt::format("{}\n", getpid());
  if (ftruncate(fd.get(), 0) != 0 ||
      pwrite(fd.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return Status(Code::io, fmt::format("{}: {}", lock_file, std::strerror(errno)));
  }
  return NodeLock(std::move(fd));
}

}  // namespace shoal::actors
