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

// The address to listen at in place of "any address": that of the interface `wanted`, given by its name or
// address. Where `wanted` is empty: the only address beyond the loopback that is up. Nothing: there is no
// such interface, or there are several to choose from.
std::optional<std::string> address_to_listen_at(const std::vector<NetworkInterface>& interfaces,
                                                const std::string& wanted);

}  // namespace shoal::base
