#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/descriptors.h"
#include "base/host_port.h"
#include "base/owned_fd.h"
#include "transport/tcp/socket.h"

namespace shoal::transport {

namespace {
constexpr int kBacklog = 4096;  // connections waiting to be accepted; the system may allow fewer

Status system_error(const std::string& what) {
  return Status(Code::unavailable, what + ": " + std::strerror(errno));
}

Result<base::OwnedFd> new_socket(const SocketAddress& address) {
  base::OwnedFd socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return system_error("cannot make a socket");
  return socket;
}

Result<base::OwnedFd> bound_socket(const SocketAddress& address) {
  SHOAL_ASSIGN_OR_RETURN(base::OwnedFd socket, new_socket(address));
  int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(socket.get(), address.get(), address.bytes) != 0 || ::listen(socket.get(), kBacklog) != 0) {
    return system_error("cannot listen on it");
  }
  return socket;
}

uint16_t port_of(const SocketAddress& address) {
  return ntohs(reinterpret_cast<const sockaddr_in&>(address.storage).sin_port);
}
}  // namespace

std::string to_string(const SocketAddress& address) {
  return base::to_string(base::HostPort{host_of(address), port_of(address)});
}

std::string host_of(const SocketAddress& address) {
  char host[NI_MAXHOST];
  if (getnameinfo(address.get(), address.bytes, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) {
    return "?";
  }
  return host;
}

void set_port(SocketAddress& address, uint16_t port) {
  reinterpret_cast<sockaddr_in&>(address.storage).sin_port = htons(port);
}

SocketAddress local_end_of(int socket) {
  SocketAddress out;
  out.bytes = sizeof out.storage;
  getsockname(socket, reinterpret_cast<sockaddr*>(&out.storage), &out.bytes);
  return out;
}

void send_at_once(int socket) {
  int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Result<base::OwnedFd> begin_connecting(const SocketAddress& address) {
  SHOAL_ASSIGN_OR_RETURN(base::OwnedFd socket, new_socket(address));
  send_at_once(socket.get());
  if (::connect(socket.get(), address.get(), address.bytes) != 0 && errno != EINPROGRESS) {
    return system_error("cannot connect to it");
  }
  return socket;
}

Result<bool> finish_connecting(const base::OwnedFd& socket) {
  int error = 0;
  socklen_t bytes = sizeof error;
  getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  if (error != 0) {
    errno = error;
    return system_error("cannot connect to it");
  }
  sockaddr_storage peer;
  socklen_t peer_bytes = sizeof peer;
  return getpeername(socket.get(), reinterpret_cast<sockaddr*>(&peer), &peer_bytes) == 0;
}

Result<Listener> Listener::listen(const SocketAddress& address, const PortRange& ports) {
  if (port_of(address) != 0 || !ports.is_set()) {
    SHOAL_ASSIGN_OR_RETURN(base::OwnedFd socket, bound_socket(address));
    return Listener(std::move(socket));
  }
  SocketAddress at = address;
  for (uint32_t port = ports.first; port <= ports.last; ++port) {
    set_port(at, static_cast<uint16_t>(port));
    auto socket = bound_socket(at);
    if (socket.ok()) return Listener(std::move(*socket));
    if (errno != EADDRINUSE) return socket.status();
  }
  return Status(Code::unavailable,
                fmt::format("every port of {} is in use: set a wider range with --ports (SHOAL_PORTS)",
                            to_string(ports)));
}

uint16_t Listener::port() const {
  return port_of(local_end_of(socket_.get()));
}

Result<Listener::Visitor> Listener::accept() {
  Visitor visitor;
  visitor.from.bytes = sizeof visitor.from.storage;
  visitor.socket = base::OwnedFd(accept4(socket_.get(), reinterpret_cast<sockaddr*>(&visitor.from.storage),
                                         &visitor.from.bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (visitor.socket.get() >= 0) {
    send_at_once(visitor.socket.get());
    return visitor;
  }
  bool is_full = base::is_out_of_descriptors(errno) || errno == ENOBUFS || errno == ENOMEM;
  return Status(is_full ? Code::busy : Code::not_found, std::strerror(errno));
}

}  // namespace shoal::transport
