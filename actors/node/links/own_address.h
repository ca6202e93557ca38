// Addresses at which other nodes reach this host.
#pragma once

#include <string>

#include "shoal/status.h"
#include "transport/live/network_options.h"

namespace shoal::actors {

// The address of this host, as `peer` (HOST:PORT) sees it: that of `network.interface`, or, if that is empty,
// of the interface on the route to `peer`. The loopback address if `peer` is on the loopback interface, so
// that a job on one host opens no other port. Blocks while a name is resolved.
Result<std::string> own_address_towards(const std::string& peer,
                                        const transport::NetworkOptions& network = {});
// Likewise, for a node that coordinates at `listen_address` (HOST:PORT): the address for nodes that connect
// there.
Result<std::string> own_address_beside(const std::string& listen_address,
                                       const transport::NetworkOptions& network);

// The address at which others reach a listener: its own, with the name of this host instead of "any address".
std::string reachable_address(const std::string& listen_address, const std::string& host_name);

}  // namespace shoal::actors
