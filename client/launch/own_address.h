// Addresses of this host.
#pragma once

#include <optional>
#include <string>

#include "shoal/status.h"

namespace shoal::client {

// The IPv4 address to listen on so that others reach this host by the name or address `host`. nullopt: `host`
// is another host, or unknown. "0.0.0.0": the name is that of this host, but resolves to the loopback alone,
// as on Debian. Blocks while it looks up the name.
std::optional<std::string> own_address(const std::string& host);

// The address to listen at so that others reach this host by `host`: own_address. If that is unknown or
// "0.0.0.0": the address of the interface that SHOAL_INTERFACE names, else of the only interface that is not
// a loopback, else "0.0.0.0". Code::not_found: the interface that SHOAL_INTERFACE names does not exist.
Result<std::string> address_to_serve_at(const std::string& host);

}  // namespace shoal::client
