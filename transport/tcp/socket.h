// TCP sockets over IPv4: addresses, owned descriptors, and listeners.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <utility>

#include "base/owned_fd.h"
#include "shoal/status.h"
#include "transport/live/network_options.h"
#include "transport/transport.h"

namespace shoal::transport {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

std::string to_string(const SocketAddress& address);  // "HOST:PORT"
std::string host_of(const SocketAddress& address);    // "HOST", numeric
void set_port(SocketAddress& address, uint16_t port);
SocketAddress local_end_of(int socket);

// Sockets are non-blocking and close-on-exec. Written bytes leave at once (TCP_NODELAY).

// Starts to connect. The socket becomes writable once that has succeeded or failed. Code::unavailable if it
// fails at once.
Result<base::OwnedFd> begin_connecting(const SocketAddress& address);
// Call it once the socket is writable. True: connected; false: not yet.
Result<bool> finish_connecting(const base::OwnedFd& socket);

class Listener {
 public:
  // Port 0: any free port, within `ports` if these are set.
  static Result<Listener> listen(const SocketAddress& address, const PortRange& ports);
  int fd() const { return socket_.get(); }
  uint16_t port() const;

  struct Visitor {
    base::OwnedFd socket;
    SocketAddress from;
  };
  // Code::not_found: no connection waits. Code::busy: this process has no file descriptor left.
  Result<Visitor> accept();

 private:
  explicit Listener(base::OwnedFd socket) : socket_(std::move(socket)) {}
  base::OwnedFd socket_;
};

void send_at_once(int socket);  // TCP_NODELAY

}  // namespace shoal::transport
