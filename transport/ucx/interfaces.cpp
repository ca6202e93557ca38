#include "transport/ucx/interfaces_internal.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

namespace shoal {

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

}  // namespace shoal
