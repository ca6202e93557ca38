// A temporary folder, removed at the end.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "shoal/check.h"

namespace shoal {

class TemporaryFolder {
 public:
  // Below $TMPDIR, else below `base`.
  explicit TemporaryFolder(const char* base = "/tmp") {
    if (const char* given = std::getenv("TMPDIR")) base = given;
    path_ = std::string(base) + "/shoal-test-XXXXXX";
    SHOAL_CHECK(mkdtemp(path_.data()) != nullptr);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace shoal
