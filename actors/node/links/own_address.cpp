#include "actors/node/links/own_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/host_port.h"
#include "base/owned_fd.h"
#include "local/socket/socket.h"
#include "transport/transport.h"

namespace shoal::actors {

namespace {

bool is_loopback(const sockaddr_in& address) {
  return ntohl(address.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

Result<sockaddr_in> resolve(const std::string& peer) {
  SHOAL_ASSIGN_OR_RETURN(base::HostPort address, base::parse_host_port(peer));
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) return Status(Code::unavailable, fmt::format("{}: {}", peer, gai_strerror(error)));
  sockaddr_in out{};
  std::memcpy(&out, found->ai_addr, sizeof out);
  freeaddrinfo(found);
  return out;
}

}  // namespace

Result<std::string> own_address_towards(const std::string& peer, const transport::NetworkOptions& network) {
  SHOAL_ASSIGN_OR_RETURN(const sockaddr_in to, resolve(peer));
  if (!network.interface.empty() && !is_loopback(to))
    return transport::address_of_interface(network.interface);
  base::OwnedFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const bool is_known =
      socket.valid() && ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  sockaddr_in own{};
  socklen_t bytes = sizeof own;
  if (!is_known || getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &bytes) != 0) {
    return Status(Code::unavailable,
                  fmt::format("cannot find an address of this host: {}", std::strerror(errno)));
  }
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &own.sin_addr, text, sizeof text);
  return std::string(text);
}

Result<std::string> own_address_beside(const std::string& listen_address,
                                       const transport::NetworkOptions& network) {
  SHOAL_ASSIGN_OR_RETURN(base::HostPort listening, base::parse_host_port(listen_address));
  SHOAL_ASSIGN_OR_RETURN(const sockaddr_in at, resolve(listen_address));
  if (!network.interface.empty() && !is_loopback(at))
    return transport::address_of_interface(network.interface);
  return listening.host;
}

std::string reachable_address(const std::string& listen_address, const std::string& host_name) {
  auto address = base::parse_host_port(listen_address);
  if (!address.ok() || (address->host != "0.0.0.0" && address->host != "::")) return listen_address;
  return base::to_string(base::HostPort{host_name, address->port});
}

}  // namespace shoal::actors
