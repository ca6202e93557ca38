#include "base/read_ahead.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <map>
#include <mutex>
#include <utility>

namespace shoal::base {

namespace {

#ifdef FUSE_SUPER_MAGIC
constexpr auto kFuseMagic = FUSE_SUPER_MAGIC;
#else
constexpr auto kFuseMagic = 0x65735546;
#endif

bool is_of_use(int fd) {
  struct statfs info;
  return ::fstatfs(fd, &info) == 0 && info.f_type != kFuseMagic;
}

}  // namespace

// A request for the type of a network file system may go to its server, so that it is made once per device.
bool is_read_ahead(int fd) {
  struct statx info;
  if (::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &info) != 0) return false;
  static std::mutex mutex;
  static std::map<std::pair<uint32_t, uint32_t>, bool> by_device;
  std::lock_guard lock(mutex);
  auto [known, fresh] = by_device.try_emplace({info.stx_dev_major, info.stx_dev_minor});
  if (fresh) known->second = is_of_use(fd);
  return known->second;
}

void read_ahead(int fd, uint64_t offset, uint64_t bytes) {
  if (!is_read_ahead(fd)) return;
  (void)::posix_fadvise(fd, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
}

}  // namespace shoal::base
