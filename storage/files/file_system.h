// FileSystem: the POSIX primitives that LocalStorage needs, one virtual call each. A fake can fail, shorten
// or crash every one of them (sim/bytes/memory_file_system.h).
//
// A folder is opened once and then addressed by its handle. Every name below is one component, and no call
// follows a symbolic link, so nothing outside the root is reached however the tree changes. Every call
// returns 0 or an errno value; after an error the out parameters are unchanged. Any thread; several threads
// may use one handle at once.
#pragma once

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shoal/bytes.h"

namespace shoal::storage {

struct FolderEntry {
  enum class Kind : uint8_t { file, folder, other };  // other: a symbolic link, device, socket
  std::string name;
  Kind kind = Kind::file;
  uint64_t size = 0;  // of a file
};

class OpenFile {
 public:
  virtual ~OpenFile() = default;
  [[nodiscard]] virtual int size(uint64_t* bytes) = 0;
  // Like pread and pwrite, may read or write fewer bytes than requested. 0 bytes read: end of file.
  [[nodiscard]] virtual int read_at(uint64_t offset, MutableByteView out, size_t* done) = 0;
  [[nodiscard]] virtual int write_at(uint64_t offset, ByteView data, size_t* done) = 0;
  // fsync: after success the file's bytes survive a crash. After a failure the state of the bytes is unknown,
  // and a successful retry proves nothing.
  [[nodiscard]] virtual int sync() = 0;
  // Hints that these bytes should be written out now, so that sync waits less.
  virtual void start_writeback(uint64_t offset, uint64_t bytes) = 0;
  // Hints that the caller reads these bytes next. Only useful for a few MiB at a time.
  virtual void will_read(uint64_t offset, uint64_t bytes) { (void)offset, (void)bytes; }
  // true: later writes bypass the page cache. Memory address, offset and length must then be multiples of
  // 4096 bytes, otherwise write_at may return EINVAL. Returns EINVAL if the file system does not support this
  // or gains nothing.
  [[nodiscard]] virtual int set_direct(bool is_direct);
};

inline int OpenFile::set_direct(bool) {
  return EINVAL;
}

class OpenFolder {
 public:
  virtual ~OpenFolder() = default;
  // Whether both handles refer to one folder, whatever its names are now. `other` belongs to the same
  // FileSystem.
  [[nodiscard]] virtual int is_same(OpenFolder& other, bool* same) = 0;
  // ENOTDIR or ELOOP if the name is not a folder.
  [[nodiscard]] virtual int open_folder(const std::string& name, std::unique_ptr<OpenFolder>* folder) = 0;
  [[nodiscard]] virtual int make_folder(const std::string& name) = 0;  // EEXIST if the name is taken
  // Opens for reading. EINVAL if the name is not a regular file.
  [[nodiscard]] virtual int open_file(const std::string& name, std::unique_ptr<OpenFile>* file) = 0;
  // Creates for reading and writing. EEXIST if the name is taken.
  [[nodiscard]] virtual int create_file(const std::string& name, std::unique_ptr<OpenFile>* file) = 0;
  // Atomic; EEXIST if `to` is taken.
  [[nodiscard]] virtual int link(const std::string& from, const std::string& to) = 0;
  // Atomic. Replaces what had the name `to`. A folder can only replace nothing or an empty folder.
  [[nodiscard]] virtual int rename(const std::string& from, const std::string& to) = 0;
  [[nodiscard]] virtual int remove_file(const std::string& name) = 0;
  [[nodiscard]] virtual int remove_folder(const std::string& name) = 0;
  [[nodiscard]] virtual int list(std::vector<FolderEntry>* entries) = 0;  // in any order
  // fsync: after success all entries that were created or removed so far survive a crash.
  [[nodiscard]] virtual int sync() = 0;
  // The bytes that a process without privileges may still write. A quota may allow fewer.
  [[nodiscard]] virtual int free_space(uint64_t* bytes) = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Opens any path. Follows symbolic links on the way; no other call does.
  [[nodiscard]] virtual int open_root(const std::string& path, std::unique_ptr<OpenFolder>* folder) = 0;
};

}  // namespace shoal::storage
