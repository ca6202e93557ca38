#include "local/socket/socket_file.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/owned_fd.h"
#include "local/socket/peer.h"

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

Status check_nobody_listens(const std::string& path) {
  SHOAL_ASSIGN_OR_RETURN(sockaddr_un address, socket_address(path));
  struct stat found;
  if (::lstat(path.c_str(), &found) != 0 || !S_ISSOCK(found.st_mode)) return ok_status();
  base::OwnedFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Status(Code::io, fmt::format("{}: socket: {}", path, std::strerror(errno)));
  const bool connects = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  // Any other error comes from a socket that is open: its queue is full, or it is of another type or user.
  if (!connects && (errno == ECONNREFUSED || errno == ENOENT)) return ok_status();
  return Status(Code::already_exists,
                path +
                    ": another program listens at this socket: end that program, or give this node another "
                    "socket with --socket or SHOAL_SOCKET");
}

std::string node_socket_file(const std::string& given, const NodePaths& paths) {
  if (!given.empty()) return given;
  const char* variable = std::getenv("SHOAL_SOCKET");
  return variable != nullptr && *variable != '\0' ? variable : paths.socket_file;
}

}  // namespace shoal::local
