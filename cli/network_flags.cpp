#include "cli/network_flags.h"

#include <fmt/format.h>

namespace shoal {

void add_network_options(CLI::App& command, NetworkOptions* network) {
  auto read_transport = [network](const std::string& text) {
    const Result<TransportKind> kind = parse_transport_kind(text);
    if (!kind.ok()) throw CLI::ValidationError("--transport", kind.status().message());
    network->transport = *kind;
  };
  auto read_ports = [network](const std::string& text) {
    const Result<PortRange> ports = parse_port_range(text);
    if (!ports.ok()) throw CLI::ValidationError("--ports", ports.status().message());
    network->ports = *ports;
  };
  command
      .add_option_function<std::string>(
          "--transport", read_transport,
          fmt::format("What messages between nodes pass by: {}; auto is ucx for those who come by the "
                      "interface of an active RDMA device, else tcp; default: auto",
                      kTransportKinds))
      ->type_name("KIND")
      ->envname("SHOAL_TRANSPORT");
  command
      .add_option("--interface", network->interface,
                  "Network interface, by name or IPv4 address, that relays and nodes that share loads listen "
                  "on, and a coordinator whose address is 0.0.0.0; default: that by which the coordinator is "
                  "reached")
      ->type_name("NAME")
      ->envname("SHOAL_INTERFACE");
  command
      .add_option_function<std::string>(
          "--ports", read_ports,
          "Ports that relays and nodes that share loads listen on; default: any that is free")
      ->type_name("A-B")
      ->envname("SHOAL_PORTS");
}

std::vector<std::string> network_arguments(const NetworkOptions& network) {
  std::vector<std::string> out;
  auto add = [&](const char* name, const std::string& value) {
    out.push_back(name);
    out.push_back(value);
  };
  if (network.transport != TransportKind::automatic) add("--transport", to_string(network.transport));
  if (!network.interface.empty()) add("--interface", network.interface);
  if (network.ports.is_set()) add("--ports", to_string(network.ports));
  return out;
}

}  // namespace shoal
