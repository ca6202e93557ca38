#include "cli/installed_files.h"

#include <filesystem>
#include <system_error>

namespace shoal::cli {

namespace {

std::string beside_bin(const char* folder) {
  return (std::filesystem::path(own_program()).parent_path().parent_path() / folder).string();
}

}  // namespace

std::string own_program() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

std::string shared_folder() {
  return beside_bin("share/shoal");
}

std::string helper_folder() {
  return beside_bin("libexec/shoal");
}

}  // namespace shoal::cli
