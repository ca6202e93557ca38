// A copy of the golden root that a test may damage.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/temporary_folder.h"

namespace shoal {

inline void flip_bit_at(const std::string& path, int64_t offset, std::ios::seekdir from = std::ios::beg) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(offset, from);
  std::streampos at = file.tellg();
  char byte = static_cast<char>(file.get());
  file.seekp(at);
  file.put(static_cast<char>(byte ^ 1));
  ASSERT_TRUE(file.good());
}

class GoldenCopy {
 public:
  GoldenCopy() { std::filesystem::copy(SHOAL_GOLDEN_ROOT, root(), std::filesystem::copy_options::recursive); }
  std::string root() const { return folder_.path() + "/root"; }
  std::string path(const std::string& name) const { return root() + "/" + name; }
  std::string beside(const std::string& name) const { return folder_.path() + "/" + name; }
  void flip_bit_from_end(const std::string& name, int64_t offset) {
    flip_bit_at(path(name), -offset, std::ios::end);
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace shoal
