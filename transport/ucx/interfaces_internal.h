// The network interfaces of this machine, as far as UCX's choice of ways depends on them.
#pragma once

#include <set>
#include <string>

namespace shoal::transport {

// "eth0=10.0.0.1": of interfaces that are up, but for the loopback. IPv4, as the transport speaks.
using InterfaceAddresses = std::set<std::string>;

InterfaceAddresses interface_addresses();

// Name of the interface that has the local address of a connected socket; "" if none has it.
std::string interface_of_socket(int socket);

// "mlx5_0:1": ports of RDMA devices, as UCX_NET_DEVICES names them.
std::set<std::string> rdma_ports();

}  // namespace shoal::transport
