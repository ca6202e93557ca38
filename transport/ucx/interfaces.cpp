#include "transport/ucx/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <filesystem>

namespace shoal::transport {

InterfaceAddresses interface_addresses() {
  InterfaceAddresses out;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return out;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    constexpr unsigned kInUse = IFF_UP | IFF_RUNNING;
    bool is_in_use = (each->ifa_flags & kInUse) == kInUse && (each->ifa_flags & IFF_LOOPBACK) == 0;
    if (!is_in_use || each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN];
    const auto& address = reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr;
    if (inet_ntop(AF_INET, &address, text, sizeof text) == nullptr) continue;
    out.insert(std::string(each->ifa_name) + "=" + text);
  }
  freeifaddrs(first);
  return out;
}

std::string interface_of_socket(int socket) {
  sockaddr_in own{};
  socklen_t bytes = sizeof own;
  ifaddrs* first = nullptr;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&own), &bytes) != 0 || getifaddrs(&first) != 0)
    return "";
  std::string found, loopback;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    if ((each->ifa_flags & IFF_LOOPBACK) != 0) loopback = each->ifa_name;
    const auto& address = reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr;
    if (address.s_addr == own.sin_addr.s_addr) found = each->ifa_name;
  }
  freeifaddrs(first);
  // All of 127.0.0.0/8 belongs to the loopback.
  const bool is_loopback = ntohl(own.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  return found.empty() && is_loopback ? loopback : found;
}

std::set<std::string> rdma_ports() {
  namespace fs = std::filesystem;
  std::set<std::string> out;
  std::error_code error;
  for (const auto& device : fs::directory_iterator("/sys/class/infiniband", error)) {
    for (const auto& port : fs::directory_iterator(device.path() / "ports", error)) {
      out.insert(device.path().filename().string() + ":" + port.path().filename().string());
    }
  }
  return out;
}

}  // namespace shoal::transport
