// MappedFile: the bytes of a file in memory. The kernel reads pages when they are used, and may drop them.
#pragma once

#include <string>
#include <utility>

#include "shoal/bytes.h"
#include "shoal/status.h"

namespace shoal::admin {

class MappedFile {
 public:
  // Maps a whole file, which must not become shorter meanwhile. Code::not_found, Code::io; Code::corrupt: it
  // is not a file.
  static Result<MappedFile> open(const std::string& path);
  // Maps a new file without a name in $TMPDIR, else in /tmp, and reserves its space. Code::no_space,
  // Code::io.
  static Result<MappedFile> temporary(size_t bytes);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~MappedFile();

  ByteView bytes() const { return {data_, size_}; }
  MutableByteView writable_bytes() { return {data_, size_}; }  // of a temporary file

 private:
  static Result<MappedFile> map(int fd, size_t bytes, int protection, int flags, const std::string& path);

  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace shoal::admin
