// The network interfaces of this host.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shoal/status.h"

namespace shoal::base {

struct NetworkInterface {  // one for each IPv4 address
  std::string name;
  std::string address;
  bool is_up = false, is_loopback = false;
};
Result<std::vector<NetworkInterface>> network_interfaces();

// The address to listen at instead of "any address". `wanted` is the name or the address of an interface. If
// it is empty, the result is the only address that is up and not a loopback. nullopt: there is no such
// interface, or there are several.
std::optional<std::string> address_to_listen_at(const std::vector<NetworkInterface>& interfaces,
                                                const std::string& wanted);

}  // namespace shoal::base
