#include "actors/node/own_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "local/socket.h"
#include "transport/transport.h"

namespace shoal {

Result<std::string> own_address_towards(const std::string& peer, const NetworkOptions& network) {
  if (!network.interface.empty()) return address_of_interface(network.interface);
  SHOAL_ASSIGN_OR_RETURN(HostPort address, parse_host_port(peer));
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  int error = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) return Status(Code::unavailable, fmt::format("{}: {}", peer, gai_strerror(error)));
  OwnedFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  bool is_known = socket.valid() && ::connect(socket.get(), found->ai_addr, found->ai_addrlen) == 0;
  freeaddrinfo(found);
  sockaddr_in own{};
  socklen_t bytes = sizeof own;
  if (!is_known || getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &bytes) != 0) {
    return Status(Code::unavailable, fmt::format("no address of this host: {}", std::strerror(errno)));
  }
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &own.sin_addr, text, sizeof text);
  return std::string(text);
}

std::string reachable_address(const std::string& listen_address, const std::string& host_name) {
  auto address = parse_host_port(listen_address);
  if (!address.ok() || (address->host != "0.0.0.0" && address->host != "::")) return listen_address;
  return to_string(HostPort{host_name, address->port});
}

}  // namespace shoal
