// Where other nodes reach this host.
#pragma once

#include <string>

#include "shoal/status.h"
#include "transport/live/network_options.h"

namespace shoal::actors {

// Of this host, where `peer` (HOST:PORT) sees it: that of `network.interface`, or where that is empty, of the
// interface by which the system would go there. The loopback's where the peer is on it: a job on one host
// opens nothing beyond, whatever the interface. Blocks while a name is resolved.
Result<std::string> own_address_towards(const std::string& peer,
                                        const transport::NetworkOptions& network = {});
// Likewise of a node that coordinates at `listen_address` (HOST:PORT), for those who come there.
Result<std::string> own_address_beside(const std::string& listen_address,
                                       const transport::NetworkOptions& network);

// Where others reach a listener: its own address, with this host's name in place of "any address".
std::string reachable_address(const std::string& listen_address, const std::string& host_name);

}  // namespace shoal::actors
