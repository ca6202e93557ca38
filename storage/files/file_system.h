// FileSystem: the POSIX primitives that LocalStorage rests on, one virtual call each, so that a fake can
// fail, cut short or crash at every one of them (sim/bytes/memory_file_system.h).
//
// Folders are opened once and then addressed by handle: every name below is one component, and no call
// follows a symbolic link, so that nothing leaves the root however the tree under it changes. All calls
// return 0 or an errno value; on an error the out parameters are untouched. Any thread; a handle may be used
// by several threads at once.
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
  // May read or write fewer bytes than asked, as pread and pwrite do; 0 bytes read: the end.
  [[nodiscard]] virtual int read_at(uint64_t offset, MutableByteView out, size_t* done) = 0;
  [[nodiscard]] virtual int write_at(uint64_t offset, ByteView data, size_t* done) = 0;
  // fsync: on success the file's bytes survive a crash. After a failure nothing is known, and a retry proves
  // nothing.
  [[nodiscard]] virtual int sync() = 0;
  // A hint: begin to write these bytes out, so that sync has less to wait for.
  virtual void start_writeback(uint64_t offset, uint64_t bytes) = 0;
  // A hint: these bytes are read next. At most a few MiB at a time help.
  virtual void will_read(uint64_t offset, uint64_t bytes) { (void)offset, (void)bytes; }
  // true: later writes pass the page cache by; memory, offset and length are then multiples of 4096 bytes,
  // else write_at may answer EINVAL. EINVAL where the file system gains nothing by it or cannot.
  [[nodiscard]] virtual int set_direct(bool is_direct);
};

inline int OpenFile::set_direct(bool) {
  return EINVAL;
}

class OpenFolder {
 public:
  virtual ~OpenFolder() = default;
  // Whether both are one folder, whatever their names are by now. `other` is of the same file system object.
  [[nodiscard]] virtual int is_same(OpenFolder& other, bool* same) = 0;
  // ENOTDIR or ELOOP where the name is no folder.
  [[nodiscard]] virtual int open_folder(const std::string& name, std::unique_ptr<OpenFolder>* folder) = 0;
  [[nodiscard]] virtual int make_folder(const std::string& name) = 0;  // EEXIST
  // For reading. EINVAL where the name is no regular file.
  [[nodiscard]] virtual int open_file(const std::string& name, std::unique_ptr<OpenFile>* file) = 0;
  // For reading and writing; EEXIST where the name is taken by anything.
  [[nodiscard]] virtual int create_file(const std::string& name, std::unique_ptr<OpenFile>* file) = 0;
  [[nodiscard]] virtual int link(const std::string& from, const std::string& to) = 0;  // atomic; EEXIST
  // Atomic; what was called `to` is no more. A folder may only take the name of nothing or of an empty
  // folder.
  [[nodiscard]] virtual int rename(const std::string& from, const std::string& to) = 0;
  [[nodiscard]] virtual int remove_file(const std::string& name) = 0;
  [[nodiscard]] virtual int remove_folder(const std::string& name) = 0;
  [[nodiscard]] virtual int list(std::vector<FolderEntry>* entries) = 0;  // in any order
  // fsync: on success the entries made and removed so far survive a crash.
  [[nodiscard]] virtual int sync() = 0;
  [[nodiscard]] virtual int free_space(uint64_t* bytes) = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Any path; symbolic links on the way are followed, this once.
  [[nodiscard]] virtual int open_root(const std::string& path, std::unique_ptr<OpenFolder>* folder) = 0;
};

}  // namespace shoal::storage
