// WatchedFileSystem: wraps another file system and registers each call, with its path, at a CallWatch. This
// includes the close of a file, in which NFS writes out its cache.
#pragma once

#include "storage/files/call_watch.h"
#include "storage/files/file_system.h"

namespace shoal::storage {

class WatchedFileSystem final : public FileSystem {
 public:
  // Both must outlive this object.
  WatchedFileSystem(FileSystem& real, CallWatch& watch) : real_(real), watch_(watch) {}
  int open_root(const std::string& path, std::unique_ptr<OpenFolder>* folder) override;

 private:
  FileSystem& real_;
  CallWatch& watch_;
};

}  // namespace shoal::storage
