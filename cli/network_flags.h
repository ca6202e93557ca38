// --transport, --interface and --ports, which `shoal node` and `launch` take.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "transport/live/network_options.h"

namespace shoal {

// Also from SHOAL_TRANSPORT, SHOAL_INTERFACE and SHOAL_PORTS.
void add_network_options(CLI::App& command, NetworkOptions* network);
// The same as arguments of `shoal node`; what is not set is left out.
std::vector<std::string> network_arguments(const NetworkOptions& network);

}  // namespace shoal
