#include "base/root_name.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace shoal::base {

namespace {

bool is_plain(std::string_view component) {
  return component != "." && component != ".." && std::all_of(component.begin(), component.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
                  c == '_' || c == '-';
         });
}

Result<std::string> normal_object_root(const std::string& root) {
  std::string out(kS3Scheme);
  std::string_view rest = std::string_view(root).substr(kS3Scheme.size());
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('/'), rest.size());
    const std::string_view component = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (component.empty()) continue;
    if (!is_plain(component)) {
      return Status(Code::invalid_argument, "root " + root + ": '" + std::string(component) +
                                                "' may contain only [A-Za-z0-9._-], and not be . or ..");
    }
    if (out.size() > kS3Scheme.size()) out += '/';
    out += component;
  }
  if (out.size() == kS3Scheme.size()) {
    return Status(Code::invalid_argument, "root " + root + " names no bucket: expected s3://BUCKET/PREFIX");
  }
  return out;
}

}  // namespace

bool is_in_object_store(std::string_view root) {
  return root.starts_with(kS3Scheme);
}

bool looks_like_url(std::string_view path) {
  const size_t colon = path.find(':');
  if (colon == 0 || colon == std::string_view::npos || !path.substr(colon + 1).starts_with('/')) return false;
  return std::ranges::all_of(path.substr(0, colon), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  });
}

Result<std::string> normal_root(const std::string& root) {
  if (root.empty()) return Status(Code::invalid_argument, "the name of the root is empty");
  if (root.find('\0') != std::string::npos)
    return Status(Code::invalid_argument, "the name of the root has a NUL byte");
  if (is_in_object_store(root)) return normal_object_root(root);
  char resolved[PATH_MAX];
  if (!::realpath(root.c_str(), resolved)) {
    const Code code = errno == ENOENT || errno == ENOTDIR ? Code::not_found : Code::io;
    return Status(code, root + ": " + std::strerror(errno));
  }
  struct stat folder {};
  if (::stat(resolved, &folder) != 0) {
    return Status(Code::io, std::string(resolved) + ": " + std::strerror(errno));
  }
  if (!S_ISDIR(folder.st_mode)) return Status(Code::not_found, std::string(resolved) + " is not a folder");
  return std::string(resolved);
}

std::string absolute_root(const std::string& root) {
  if (is_in_object_store(root)) return root;
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(root, error);
  return error ? root : absolute.string();
}

}  // namespace shoal::base
