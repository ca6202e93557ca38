// The network interfaces of this machine that affect UCX's choice of paths.
#pragma once

#include <set>
#include <string>

namespace shoal::transport {

// "eth0=10.0.0.1" for each interface that is up, without the loopback. IPv4 only, like the transport.
using InterfaceAddresses = std::set<std::string>;

InterfaceAddresses interface_addresses();

// Name of the interface that has the local address of a connected socket; "" if there is none.
std::string interface_of_socket(int socket);

// Ports of RDMA devices as UCX_NET_DEVICES names them: "mlx5_0:1".
std::set<std::string> rdma_ports();

}  // namespace shoal::transport
