#include "storage/files/posix_file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <limits>
#include <optional>

#include "base/owned_fd.h"
#include "base/read_ahead.h"

namespace shoal::storage {

namespace {

constexpr mode_t kFolderMode = 0777;  // the umask decides
constexpr mode_t kFileMode = 0666;

// Repeats a system call while signals interrupt it. Turns -1 into errno.
template <class Call>
int retried(Call call) {
  while (call() < 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

class PosixFile final : public OpenFile {
 public:
  explicit PosixFile(int fd) : fd_(fd) {}

  int size(uint64_t* bytes) override {
    struct stat info;
    if (fstat(fd_.get(), &info) < 0) return errno;
    *bytes = static_cast<uint64_t>(info.st_size);
    return 0;
  }
  int read_at(uint64_t offset, MutableByteView out, size_t* done) override {
    return retried([&] {
      ssize_t got = pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset));
      if (got >= 0) *done = static_cast<size_t>(got);
      return got;
    });
  }
  int write_at(uint64_t offset, ByteView data, size_t* done) override {
    return retried([&] {
      ssize_t put = pwrite(fd_.get(), data.data(), data.size(), static_cast<off_t>(offset));
      if (put >= 0) *done = static_cast<size_t>(put);
      return put;
    });
  }
  int sync() override {
    return retried([&] { return fsync(fd_.get()); });
  }
  void start_writeback(uint64_t offset, uint64_t bytes) override {
#ifdef SYNC_FILE_RANGE_WRITE
    (void)sync_file_range(fd_.get(), static_cast<off64_t>(offset), static_cast<off64_t>(bytes),
                          SYNC_FILE_RANGE_WRITE);
#else
    (void)offset, (void)bytes;
#endif
  }
  void will_read(uint64_t offset, uint64_t bytes) override {
    base::read_ahead(fd_.get(), offset, bytes);
  }
  int set_direct(bool is_direct) override {
    struct statfs info;
    // Files in memory gain nothing from it, although newer kernels would allow it.
    if (is_direct && (fstatfs(fd_.get(), &info) < 0 || info.f_type == TMPFS_MAGIC)) return EINVAL;
    const int flags = fcntl(fd_.get(), F_GETFL);
    if (flags < 0) return errno;
    return fcntl(fd_.get(), F_SETFL, is_direct ? flags | O_DIRECT : flags & ~O_DIRECT) < 0 ? errno : 0;
  }

 private:
  base::OwnedFd fd_;
};

class PosixFolder final : public OpenFolder {
 public:
  explicit PosixFolder(int fd) : fd_(fd) {}

  static int open_at(int parent, const char* name, int flags, std::unique_ptr<OpenFolder>* folder) {
    int fd = -1;
    int error =
        retried([&] { return fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags); });
    if (error == 0) *folder = std::make_unique<PosixFolder>(fd);
    return error;
  }

  int is_same(OpenFolder& other, bool* same) override {
    struct stat mine, theirs;
    if (fstat(fd_.get(), &mine) < 0) return errno;
    if (fstat(static_cast<PosixFolder&>(other).fd_.get(), &theirs) < 0) return errno;
    *same = mine.st_dev == theirs.st_dev && mine.st_ino == theirs.st_ino;
    return 0;
  }
  int open_folder(const std::string& name, std::unique_ptr<OpenFolder>* folder) override {
    return open_at(fd_.get(), name.c_str(), O_NOFOLLOW, folder);
  }
  int make_folder(const std::string& name) override {
    if (mkdirat(fd_.get(), name.c_str(), kFolderMode) < 0) return errno;
    if (const auto owner = owner_to_be()) {
      (void)!fchownat(fd_.get(), name.c_str(), owner->uid, owner->gid, AT_SYMLINK_NOFOLLOW);
    }
    return 0;
  }
  int open_file(const std::string& name, std::unique_ptr<OpenFile>* file) override {
    int fd = -1;
    // O_NONBLOCK: a FIFO in the folder must not block us.
    int flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
    int error = retried([&] { return fd = openat(fd_.get(), name.c_str(), flags); });
    if (error != 0) return error;
    auto opened = std::make_unique<PosixFile>(fd);
    struct stat info;
    if (fstat(fd, &info) < 0) return errno;
    if (!S_ISREG(info.st_mode)) return EINVAL;
    *file = std::move(opened);
    return 0;
  }
  int create_file(const std::string& name, std::unique_ptr<OpenFile>* file) override {
    int fd = -1;
    int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int error = retried([&] { return fd = openat(fd_.get(), name.c_str(), flags, kFileMode); });
    if (error != 0) return error;
    *file = std::make_unique<PosixFile>(fd);
    if (const auto owner = owner_to_be()) (void)!fchown(fd, owner->uid, owner->gid);
    return 0;
  }
  int link(const std::string& from, const std::string& to) override {
    return linkat(fd_.get(), from.c_str(), fd_.get(), to.c_str(), 0) < 0 ? errno : 0;
  }
  int rename(const std::string& from, const std::string& to) override {
    return renameat(fd_.get(), from.c_str(), fd_.get(), to.c_str()) < 0 ? errno : 0;
  }
  int remove_file(const std::string& name) override {
    return unlinkat(fd_.get(), name.c_str(), 0) < 0 ? errno : 0;
  }
  int remove_folder(const std::string& name) override {
    return unlinkat(fd_.get(), name.c_str(), AT_REMOVEDIR) < 0 ? errno : 0;
  }
  int list(std::vector<FolderEntry>* entries) override;
  int sync() override {
    int error = retried([&] { return fsync(fd_.get()); });
    return error == EROFS ? 0 : error;  // a read-only file system has nothing to write out
  }
  int free_space(uint64_t* bytes) override {
    struct statvfs info;
    int error = retried([&] { return fstatvfs(fd_.get(), &info); });
    if (error != 0) return error;
    uint64_t block = info.f_frsize, blocks = info.f_bavail;
    bool overflows = block != 0 && blocks > std::numeric_limits<uint64_t>::max() / block;
    *bytes = overflows ? std::numeric_limits<uint64_t>::max() : block * blocks;
    return 0;
  }

 private:
  struct Owner {
    uid_t uid = 0;
    gid_t gid = 0;
  };
  // What the superuser creates in a folder belongs to the owner of the folder, as far as the file system
  // permits. Otherwise, after `sudo shoal pin`, the owner's jobs could not write to `pins/`. None: leave it.
  std::optional<Owner> owner_to_be() const {
    struct stat info;
    if (geteuid() != 0 || fstat(fd_.get(), &info) < 0) return std::nullopt;
    if (info.st_uid == 0 && info.st_gid == 0) return std::nullopt;
    return Owner{info.st_uid, info.st_gid};
  }

  base::OwnedFd fd_;
};

int PosixFolder::list(std::vector<FolderEntry>* entries) {
  int fd = -1;  // a separate handle, because all threads share the position of fd_
  int error = retried([&] { return fd = openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (error != 0) return error;
  DIR* folder = fdopendir(fd);
  if (folder == nullptr) {
    error = errno;
    close(fd);
    return error;
  }
  std::vector<FolderEntry> found;
  for (;;) {
    errno = 0;
    dirent* entry = readdir(folder);
    if (entry == nullptr) {
      error = errno;
      break;
    }
    std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (entry->d_type == DT_DIR) {  // the size of a folder is not needed
      found.push_back({std::move(name), FolderEntry::Kind::folder, 0});
      continue;
    }
    struct stat info;
    if (fstatat(fd, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) < 0) {
      if (errno == ENOENT) continue;  // removed meanwhile
      error = errno;
      break;
    }
    FolderEntry& added = found.emplace_back();
    added.name = std::move(name);
    added.kind = S_ISDIR(info.st_mode)   ? FolderEntry::Kind::folder
                 : S_ISREG(info.st_mode) ? FolderEntry::Kind::file
                                         : FolderEntry::Kind::other;
    if (added.kind == FolderEntry::Kind::file) added.size = static_cast<uint64_t>(info.st_size);
  }
  closedir(folder);
  if (error == 0) *entries = std::move(found);
  return error;
}

}  // namespace

int PosixFileSystem::open_root(const std::string& path, std::unique_ptr<OpenFolder>* folder) {
  return PosixFolder::open_at(AT_FDCWD, path.c_str(), 0, folder);
}

}  // namespace shoal::storage
