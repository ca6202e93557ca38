#include "admin/dcp/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/owned_fd.h"

namespace shoal::admin {

Result<MappedFile> MappedFile::map(int fd, size_t bytes, int protection, int flags, const std::string& path) {
  MappedFile file;
  if (bytes == 0) return file;  // cannot be mapped
  void* memory = ::mmap(nullptr, bytes, protection, flags, fd, 0);
  if (memory == MAP_FAILED) {
    return Status(Code::io, fmt::format("cannot map {}: {}", path, std::strerror(errno)));
  }
  file.data_ = static_cast<std::byte*>(memory);
  file.size_ = bytes;
  return file;
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  const base::OwnedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) {
    const Code code = errno == ENOENT || errno == ENOTDIR ? Code::not_found : Code::io;
    return Status(code, fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  }
  struct stat about {};
  if (::fstat(fd.get(), &about) != 0) {
    return Status(Code::io, fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  }
  if (!S_ISREG(about.st_mode)) return Status(Code::corrupt, fmt::format("{} is not a file", path));
  return map(fd.get(), static_cast<size_t>(about.st_size), PROT_READ, MAP_PRIVATE, path);
}

Result<MappedFile> MappedFile::temporary(size_t bytes) {
  const char* given = std::getenv("TMPDIR");
  const std::string folder = given != nullptr && *given != '\0' ? given : "/tmp";
  const base::OwnedFd fd(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  int error = fd.valid() ? 0 : errno;
  if (error == 0 && bytes > 0) error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes));
  if (error != 0) {
    const Code code = error == ENOSPC || error == EDQUOT ? Code::no_space : Code::io;
    return Status(
        code, fmt::format("{} cannot take {} of a tensor that is not stored in order: {}. Set TMPDIR", folder,
                          human_bytes(bytes), std::strerror(error)));
  }
  return map(fd.get(), bytes, PROT_READ | PROT_WRITE, MAP_SHARED, folder);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace shoal::admin
