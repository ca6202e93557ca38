#include "base/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>

namespace shoal::base {

Result<std::vector<NetworkInterface>> network_interfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) {
    return Status(Code::io, std::string("cannot list the network interfaces: ") + std::strerror(errno));
  }
  std::vector<NetworkInterface> out;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr, text, sizeof text);
    out.push_back(
        {each->ifa_name, text, (each->ifa_flags & IFF_UP) != 0, (each->ifa_flags & IFF_LOOPBACK) != 0});
  }
  freeifaddrs(first);
  return out;
}

std::optional<std::string> address_to_listen_at(const std::vector<NetworkInterface>& interfaces,
                                                const std::string& wanted) {
  std::optional<std::string> found;
  for (const NetworkInterface& each : interfaces) {
    if (!wanted.empty()) {
      if (wanted == each.name || wanted == each.address) return each.address;
    } else if (each.is_up && !each.is_loopback) {
      if (found) return std::nullopt;
      found = each.address;
    }
  }
  return found;
}

}  // namespace shoal::base
