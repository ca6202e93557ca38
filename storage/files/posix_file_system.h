// PosixFileSystem: FileSystem on the system calls of the kernel.
#pragma once

#include <memory>
#include <string>

#include "storage/files/file_system.h"

namespace shoal::storage {

class PosixFileSystem final : public FileSystem {
 public:
  int open_root(const std::string& path, std::unique_ptr<OpenFolder>* folder) override;
};

}  // namespace shoal::storage
