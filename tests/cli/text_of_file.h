// The text of a file that a program wrote or that the tree has; empty if there is no such file.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

namespace shoal::cli {

inline std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace shoal::cli
