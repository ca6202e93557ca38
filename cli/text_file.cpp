#include "cli/text_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace shoal::cli {

namespace {

Status unwritable(const std::string& file) {
  return Status(Code::io, fmt::format("cannot write {}: {}", file, std::strerror(errno)));
}

}  // namespace

Status check_writable(const std::string& file) {
  std::error_code error;
  const bool was_there = std::filesystem::exists(file, error);
  std::ofstream out(file, std::ios::app);
  if (!out) return unwritable(file);
  out.close();
  if (!was_there) std::filesystem::remove(file, error);
  return ok_status();
}

Status write_text(const std::string& file, const std::string& text) {
  std::ofstream out(file, std::ios::trunc);
  out << text;
  out.close();
  return out ? ok_status() : unwritable(file);
}

std::string free_name(const std::string& stem, const std::string& ending) {
  std::string name = stem + ending;
  std::error_code error;
  for (int i = 2; std::filesystem::exists(std::filesystem::symlink_status(name, error)); ++i) {
    name = fmt::format("{}-{}{}", stem, i, ending);
  }
  return name;
}

}  // namespace shoal::cli
