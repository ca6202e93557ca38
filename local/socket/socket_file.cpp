#include "local/socket/socket_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace shoal::local {

Status remove_socket_file(const std::string& path) {
  const auto failed = [&path] {
    if (errno == ENOENT) return ok_status();
    return Status(Code::io, fmt::format("{}: removing a stale socket: {}", path, std::strerror(errno)));
  };
  struct stat found;
  if (::lstat(path.c_str(), &found) != 0) return failed();
  if (!S_ISSOCK(found.st_mode)) {
    return Status(Code::invalid_argument,
                  path + ": exists and is not a socket: give the socket a path where no file is");
  }
  return ::unlink(path.c_str()) == 0 ? ok_status() : failed();
}

std::string node_socket_file(const std::string& given, const NodePaths& paths) {
  if (!given.empty()) return given;
  const char* variable = std::getenv("SHOAL_SOCKET");
  return variable != nullptr && *variable != '\0' ? variable : paths.socket_file;
}

}  // namespace shoal::local
