#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/owned_fd.h"
#include "local/socket/peer.h"
#include "local/socket/socket.h"
#include "local/socket/socket_file.h"

namespace shoal::local {

namespace {

constexpr int kBacklog = 256;

Status failed(const std::string& path, const char* what) {
  return Status(Code::io, fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
}

}  // namespace

Result<std::unique_ptr<LocalListener>> LocalListener::listen(const std::string& path) {
  SHOAL_ASSIGN_OR_RETURN(sockaddr_un address, socket_address(path));
  std::unique_ptr<LocalListener> listener(new LocalListener());
  listener->fd_ = base::OwnedFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener->fd_.valid()) return failed(path, "socket");
  SHOAL_RETURN_IF_ERROR(check_nobody_listens(path));
  SHOAL_RETURN_IF_ERROR(remove_socket_file(path));
  if (::bind(listener->fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return failed(path, "bind");
  }
  listener->path_ = path;
  if (::chmod(path.c_str(), 0600) != 0) return failed(path, "chmod");
  if (::listen(listener->fd_.get(), kBacklog) != 0) return failed(path, "listen");
  return listener;
}

LocalListener::~LocalListener() {
  if (!path_.empty()) (void)remove_socket_file(path_);  // it may have been replaced by another kind of file
}

Result<std::optional<base::OwnedFd>> LocalListener::accept(int timeout_ms) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(std::max(timeout_ms, 0));
  while (true) {
    base::OwnedFd peer(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (peer.valid()) {
      if (check_peer(peer.get()).ok()) return std::optional(std::move(peer));
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return failed(path_, "accept");
    int wait_ms = -1;
    if (timeout_ms >= 0) {
      auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
      if (left <= 0) return std::optional<base::OwnedFd>();
      wait_ms = static_cast<int>(left);
    }
    pollfd waiting{fd_.get(), POLLIN, 0};
    if (::poll(&waiting, 1, wait_ms) < 0 && errno != EINTR) return failed(path_, "poll");
  }
}

}  // namespace shoal::local
