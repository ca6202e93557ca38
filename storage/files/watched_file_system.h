// WatchedFileSystem: another file system whose calls a CallWatch sees, each with its path. Also the close of
// a file, which writes out what NFS has cached.
#pragma once

#include "storage/files/call_watch.h"
#include "storage/files/file_system.h"

namespace shoal::storage {

class WatchedFileSystem final : public FileSystem {
 public:
  WatchedFileSystem(FileSystem& real, CallWatch& watch) : real_(real), watch_(watch) {}  // both outlive it
  int open_root(const std::string& path, std::unique_ptr<OpenFolder>* folder) override;

 private:
  FileSystem& real_;
  CallWatch& watch_;
};

}  // namespace shoal::storage
