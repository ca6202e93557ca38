#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/owned_fd.h"
#include "base/root_name.h"
#include "local/socket/socket.h"
#include "local/status/node_query.h"
#include "shoal/hash.h"

namespace shoal::local {

namespace {

constexpr const char* kReaderInfix = "-reader-";  // between the hash of the root and the hash of the reader

std::string short_hash(const std::string& text) {
  return xxh3_128(as_view(text)).to_hex().substr(0, 16);
}

// In a folder that all users may write to, another user may have created this one first, or a link.
Status make_private_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return Status(Code::io,
                  fmt::format("cannot make the runtime folder {}: {}; choose another with SHOAL_RUNTIME_DIR",
                              path, std::strerror(errno)));
  }
  base::OwnedFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat found {};
  if (!folder.valid() || ::fstat(folder.get(), &found) != 0) {
    return Status(Code::refused, fmt::format("{}: {}", path, std::strerror(errno)));
  }
  if (found.st_uid != ::geteuid()) {
    return Status(
        Code::refused,
        fmt::format("the runtime folder {} belongs to user {}: choose another with SHOAL_RUNTIME_DIR", path,
                    found.st_uid));
  }
  if ((found.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Status(Code::refused, fmt::format("other users may write to the runtime folder {}: run chmod 700, "
                                             "or choose another with SHOAL_RUNTIME_DIR",
                                             path));
  }
  return ok_status();
}

}  // namespace

std::string runtime_folder() {
  if (const char* own = std::getenv("SHOAL_RUNTIME_DIR"); own && *own) return own;
  if (const char* user = std::getenv("XDG_RUNTIME_DIR"); user && *user) return std::string(user) + "/shoal";
  return fmt::format("/tmp/shoal-{}", ::geteuid());
}

Status make_runtime_folder() {
  return make_private_folder(runtime_folder());
}

Result<NodePaths> node_paths(const std::string& root, const std::string& reader) {
  SHOAL_ASSIGN_OR_RETURN(std::string real_root, base::normal_root(root));
  const std::string folder = runtime_folder();
  SHOAL_RETURN_IF_ERROR(make_private_folder(folder));
  std::string stem = fmt::format("{}/{}", folder, short_hash(real_root));
  if (!reader.empty()) stem += kReaderInfix + short_hash(reader);
  return NodePaths{stem + ".lock", stem + ".sock", stem + ".log", stem + ".catalog"};
}

Result<std::vector<std::string>> list_reader_sockets(const std::string& root) {
  SHOAL_ASSIGN_OR_RETURN(std::string real_root, base::normal_root(root));
  const std::string stem = fmt::format("{}/{}{}", runtime_folder(), short_hash(real_root), kReaderInfix);
  std::vector<std::string> sockets = list_node_sockets();
  std::erase_if(sockets, [&](const std::string& socket) { return !socket.starts_with(stem); });
  return sockets;
}

}  // namespace shoal::local
